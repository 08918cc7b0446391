"""A rotation of the sealing key comes to its end by itself: what the previous key sealed is sealed anew."""

import asyncio
from typing import Final

from contracts.errors import MinutebookError
from libs.config import Secrets
from libs.sealing import PREVIOUS_REF
from libs.telemetry.logs import get_logger
from libs.vault import Vault

LOOK_SECONDS: Final = 60.0

_log = get_logger("api.resealing")


class Resealing:
    """Looks while there is a previous key. Several apis may do so at once: each secret is sealed anew by one."""

    def __init__(self, secrets: Secrets, vault: Vault) -> None:
        self._secrets = secrets
        self._vault = vault
        self._told: str | None = None

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Seal anew what has to be, and say once for each previous key that it is needed no more."""
        try:
            previous = self._secrets.get(PREVIOUS_REF)
            if previous is None or previous == self._told:
                return
            count = await self._vault.reseal()
        except MinutebookError as error:  # said again at every look, until it is mended
            _log.warning("grants are not sealed anew", code=error.code)
            return
        self._told = previous
        _log.info("no grant needs the previous sealing key", sealed_anew=count)
