"""The database's clock at hand, for what is judged to the second: deadlines of asks."""

import asyncio
from datetime import datetime, timedelta
from typing import Final

from libs.clock import monotonic
from libs.eventstore.port import EventStore

ASK_AGAIN_SECONDS: Final = 2.0


class DatabaseClock:
    """Asks the database what time it is every few seconds at most, and counts on from there in between.

    Not for owners: they decide by the clock of the query that loaded their batch.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._asking = asyncio.Lock()
        self._then = float("-inf")
        self._was: datetime | None = None

    async def now(self) -> datetime:
        """The database's clock, later than it is by at most the time that it took to say so.

        Raises:
            contracts.errors.Unavailable: it was asked too long ago and does not answer.
        """
        if self._was is None or monotonic() - self._then > ASK_AGAIN_SECONDS:
            async with self._asking:
                if self._was is None or monotonic() - self._then > ASK_AGAIN_SECONDS:
                    then = monotonic()
                    self._was, self._then = await self._store.now(), then
        assert self._was is not None, "asked above"
        return self._was + timedelta(seconds=monotonic() - self._then)
