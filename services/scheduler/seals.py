"""Seals the history at intervals, when something was written. Without a key it does not, and says so once."""

from typing import Final

import asyncpg

from contracts.errors import Broken, MinutebookError, Unavailable
from libs.audit.seals import Sealer
from libs.audit.signing import KEY_REF, signing_key
from libs.config import Secrets
from libs.process.told import told
from libs.telemetry.logs import get_logger

IN_A_ROW_MAX: Final = 20
"""Seals made one after the other, when more was written than one of them takes."""

_NO_KEY: Final = "no_key"

_log = get_logger("scheduler.seals")


class Seals:
    """Makes a seal when it is asked to."""

    def __init__(self, pool: asyncpg.Pool, secrets: Secrets) -> None:
        self._sealer = Sealer(pool)
        self._secrets = secrets
        self._said = ""

    async def make(self) -> None:
        """Seal all that was written, in one seal as a rule.

        Raises:
            contracts.errors.Unavailable: the database does not answer.
        """
        try:
            key = signing_key(self._secrets)
            if key is None:
                if self._said != _NO_KEY:
                    _log.warning("no seals are made, there is no key to sign them with", ref=KEY_REF)
                self._said = _NO_KEY
                return
            for _ in range(IN_A_ROW_MAX):
                seal = await self._sealer.seal(key)
                if seal is None:
                    break
                _log.info("history sealed", number=seal.number, size=seal.size, key_id=seal.key_id)
        except (Broken, Unavailable) as error:
            if told(error):
                raise
            self._complain(error)
            return
        self._said = ""

    def _complain(self, error: MinutebookError) -> None:
        if self._said != error.code:
            _log.error("the history cannot be sealed", code=error.code, reason=error.message)
        self._said = error.code
