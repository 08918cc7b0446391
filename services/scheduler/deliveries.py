"""Sends webhook deliveries to ingest that were stored and not recorded: their notice was lost."""

from datetime import timedelta
from typing import Final
from uuid import UUID

from contracts.subjects import OWNER_OF
from libs.bus.port import Bus
from libs.eventstore.port import Clockwork
from services.scheduler.recent import Recent
from services.scheduler.wakes import PAGE, wake_message

_CATEGORY: Final = "inbound"


class Deliveries:
    """Finds deliveries that are older than ingest needs."""

    def __init__(self, store: Clockwork, bus: Bus, *, age: timedelta) -> None:
        self._store = store
        self._bus = bus
        self._age = age
        self._recent: Recent[UUID] = Recent()

    async def send(self) -> None:
        """Send those that were not sent lately."""
        fresh = self._recent.fresh(await self._store.due_deliveries(older_than=self._age, limit=PAGE))
        if fresh:
            await self._bus.publish([wake_message(_CATEGORY, OWNER_OF[_CATEGORY], fresh)])
            self._recent.sent(fresh)
