"""The scheduler's lease: one replica at a time does the duties."""

import asyncio
from datetime import timedelta
from typing import Final
from uuid import UUID

from contracts.errors import Unavailable
from libs.clock import monotonic
from libs.eventstore.port import Clockwork
from libs.telemetry.logs import get_logger

NAME: Final = "scheduler"
RENEWALS: Final = 3
"""The lease is renewed when this part of it has passed."""

_log = get_logger("scheduler.lease")


class Lease:
    """Held from the last renewal for its length, by this process's own monotonic clock, counted from before the ask."""

    def __init__(self, store: Clockwork, holder: UUID, *, length: timedelta) -> None:
        self._store = store
        self._holder = holder
        self._length = length
        self._asked_at: float | None = None
        self._held = False
        self._turn = asyncio.Lock()

    async def held(self) -> bool:
        """Whether this process leads; takes or renews the lease when it is time to.

        Raises:
            contracts.errors.Unavailable: the database does not answer, so nobody can say.
        """
        async with self._turn:
            if self._asked_at is None or monotonic() - self._asked_at >= self._pause():
                await self._ask()
            return self._held

    async def release(self) -> None:
        """Give the lease back, so that another replica need not wait for its end."""
        async with self._turn:
            if not self._held:
                return
            self._held = False
            try:
                await self._store.release_lease(NAME, self._holder)
            except Unavailable as error:
                _log.warning("lease not given back, it ends by itself", code=error.code)

    def _pause(self) -> float:
        return self._length.total_seconds() / RENEWALS

    async def _ask(self) -> None:
        self._asked_at, before = monotonic(), self._held
        self._held = False
        self._held = await self._store.hold_lease(NAME, self._holder, for_=self._length)
        if self._held != before:
            _log.info("scheduler leads" if self._held else "scheduler stands by", holder=str(self._holder))
