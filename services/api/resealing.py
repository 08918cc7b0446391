"""A rotation of the sealing key comes to its end by itself: what the previous key sealed is sealed anew."""

import asyncio
from typing import Final, Protocol

from contracts.errors import MinutebookError
from libs.config import Secrets
from libs.sealing import PREVIOUS_REF
from libs.telemetry.logs import get_logger

LOOK_SECONDS: Final = 60.0

_log = get_logger("api.resealing")


class Kept(Protocol):
    """Where sealed things are kept: the vault of grants, the keys of persons."""

    async def reseal(self) -> int:
        """Seal under the key of now what another one sealed, and return how many things that were."""
        ...


class Resealing:
    """Looks while there is a previous key. Several apis may do so at once: each secret is sealed anew by one."""

    def __init__(self, secrets: Secrets, *kept: Kept) -> None:
        self._secrets = secrets
        self._kept = kept
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
            count = sum([await kept.reseal() for kept in self._kept])
        except MinutebookError as error:  # said again at every look, until it is mended
            _log.warning("what the previous sealing key sealed is not sealed anew", code=error.code)
            return
        self._told = previous
        _log.info("nothing needs the previous sealing key", sealed_anew=count)
