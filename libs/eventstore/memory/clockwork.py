"""The clock's side of the memory store: what is due, the outbox, the scheduler's lease."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from libs.eventstore.heads import heads_of
from libs.eventstore.memory.holding import Head, Holding
from libs.eventstore.port import (
    Due,
    OutboxToken,
    Page,
    Woken,
    Written,
)


class MemoryClockwork(Holding):
    """As `libs.eventstore.clockwork` has it."""

    async def due(self, category: str, *, limit: int, after: tuple[datetime, UUID] | None = None) -> Sequence[Due]:
        found = sorted(
            (head.wake_at, stream_id)
            for stream_id, head in self.rows[category].items()
            if head.wake_at is not None and head.wake_at <= self.clock
        )
        return [Due(category, i, at) for at, i in found if after is None or (at, i) > after][:limit]

    async def due_deliveries(self, *, older_than: timedelta, limit: int) -> Sequence[UUID]:
        old = [d for d in self._in_order() if d.received_at is not None and d.received_at <= self.clock - older_than]
        return [delivery.id for delivery in old[:limit]]

    async def unpublished(
        self, *, older_than: timedelta, limit: int
    ) -> Sequence[tuple[OutboxToken, Sequence[Written]]]:
        old = [(t, w) for t, (at, w) in self._unpublished.items() if at <= self.clock - older_than]
        return old[:limit]

    async def hold_lease(self, name: str, holder: UUID, *, for_: timedelta) -> bool:
        held = self._leases.get(name)
        if held is not None and held[0] != holder and held[1] > self.clock:
            return False
        self._leases[name] = (holder, self.clock + for_)
        return True

    async def release_lease(self, name: str, holder: UUID) -> None:
        held = self._leases.get(name)
        if held is not None and held[0] == holder:
            del self._leases[name]

    async def wake_open(
        self, category: str, states: Collection[str], *, limit: int, after: UUID | None = None
    ) -> Woken:
        heads = self.rows[heads_of(category).category]
        page = [stream_id for stream_id in sorted(heads) if after is None or stream_id > after][:limit]
        sleeping = [i for i in page if heads[i].state in states and not self._is_due(heads[i])]
        for stream_id in sleeping:
            heads[stream_id] = replace(heads[stream_id], wake_at=self.clock)
        return Woken(len(sleeping), page[-1] if len(page) == limit else None)

    async def in_states(self, category: str, states: Collection[str], *, limit: int, after: UUID | None = None) -> Page:
        heads = self.rows[heads_of(category).category]
        page = [stream_id for stream_id in sorted(heads) if after is None or stream_id > after][:limit]
        found = tuple(stream_id for stream_id in page if heads[stream_id].state in states)
        return Page(found, page[-1] if len(page) == limit else None)

    def _is_due(self, head: Head) -> bool:
        return head.wake_at is not None and head.wake_at <= self.clock

    async def incarnations(self) -> Mapping[str, str]:
        return dict(self._incarnations)

    async def record_incarnations(self, stamps: Mapping[str, str | None]) -> None:
        for stream, created in stamps.items():
            if created is None:
                self._incarnations.pop(stream, None)
            else:
                self._incarnations[stream] = created
