"""Sends streams whose `wake_at` has come to their owners."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

from contracts import subjects
from contracts.envelope import Owner, Wake
from libs.bus.port import Bus, Message
from libs.eventstore.port import Clockwork, Due
from libs.ids import mint
from libs.telemetry import metrics
from services.scheduler.recent import Recent

PAGE: Final = 500
"""Streams of one message: about 20 kB."""

PAGES_MAX: Final = 20
"""Pages of one category in one tick; the next tick goes on where this one stopped."""

_LISTENING: Final = frozenset(subject for durable in subjects.DURABLES for subject in durable.subjects)

OWNERS: Final[Mapping[str, Owner]] = {
    category: owner for category, owner in subjects.OWNER_OF.items() if subjects.wake(owner) in _LISTENING
}
"""Categories whose owner takes wakes. The others wait on nobody's clock."""


class WakeStore(Clockwork, Protocol):
    """What is due, and the clock that it is due by."""

    async def now(self) -> datetime: ...


class Wakes:
    """Pages through what is due, category by category, oldest first."""

    def __init__(self, store: WakeStore, bus: Bus) -> None:
        self._store = store
        self._bus = bus
        self._recent: Recent[tuple[UUID, datetime]] = Recent()
        self._cursors: dict[str, tuple[datetime, UUID]] = {}

    async def send(self) -> None:
        """Send everything that is due and was not sent lately."""
        for category, owner in OWNERS.items():
            await self._send(category, owner)

    async def _send(self, category: str, owner: Owner) -> None:
        for _ in range(PAGES_MAX):
            page = await self._store.due(category, limit=PAGE, after=self._cursors.get(category))
            await self._publish(category, owner, page)
            if len(page) < PAGE:
                self._cursors.pop(category, None)
                return
            self._cursors[category] = (page[-1].wake_at, page[-1].stream_id)

    async def _publish(self, category: str, owner: Owner, page: Sequence[Due]) -> None:
        fresh = self._recent.fresh((due.stream_id, due.wake_at) for due in page)
        if not fresh:
            return
        await self._bus.publish([wake_message(category, owner, [stream_id for stream_id, _ in fresh])])
        self._recent.sent(fresh)
        late, now = metrics.WAKE_LATE_SECONDS.labels(category), await self._store.now()
        for _, wake_at in fresh:
            late.observe((now - wake_at).total_seconds())


def wake_message(category: str, owner: Owner, stream_ids: Sequence[UUID]) -> Message:
    """A wake under an id of its own: the same streams may be woken again within the bus's dedupe window."""
    wake = Wake(category=category, stream_ids=tuple(stream_ids))
    return Message(subject=subjects.wake(owner), data=wake.model_dump_json().encode(), id=f"wake.{mint()}")
