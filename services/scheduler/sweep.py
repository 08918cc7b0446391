"""Publishes what was committed and never published: its writer died, or the bus was away."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Protocol
from uuid import UUID

from contracts.envelope import Doorbell
from contracts.events.attempt import AttemptQueued
from contracts.subjects import work
from libs.bus.port import Bus, Message
from libs.eventstore.port import Clockwork, EventStore, OutboxToken, Written
from libs.ids import mint
from libs.owner.publisher import envelopes
from libs.telemetry.logs import get_logger

ROWS_MAX: Final = 200
"""Outbox rows of one tick. Each is one statement's work, so they are published one by one."""

_CLAIMABLE_AGAIN: Final = frozenset({"attempt.queued", "attempt.lease_lost"})

_log = get_logger("scheduler.sweep")


class SweepStore(EventStore, Clockwork, Protocol):
    """What the sweep reads and forgets. `flush` deletes the forgotten rows now: no append of ours will."""

    async def flush(self) -> None: ...


class Sweep:
    """Rereads what old outbox rows wrote."""

    def __init__(self, store: SweepStore, bus: Bus, *, age: timedelta) -> None:
        self._store = store
        self._bus = bus
        self._age = age

    async def publish(self) -> None:
        """Publish everything older than the age again, under new message ids: the dedupe window knows the old ones."""
        rows = await self._store.unpublished(older_than=self._age, limit=ROWS_MAX)
        try:
            for token, written in rows:
                await self._bus.publish(await self._messages(token, written))
                await self._store.published(token)
        finally:
            await self._store.flush()
        if rows:
            _log.info("facts published again", rows=len(rows), facts=sum(len(written) for _, written in rows))

    async def _messages(self, token: OutboxToken, written: Sequence[Written]) -> list[Message]:
        again = f"{token.era}.{token.xid}.{mint()}"
        rings = Counter(await self._work({fact.stream_id for fact in written if fact.type in _CLAIMABLE_AGAIN}))
        return envelopes(written, era=token.era, id_=again) + [
            Message(subject=subject, data=Doorbell(count=count).model_dump_json().encode(), id=f"{again}.{subject}")
            for subject, count in rings.items()
        ]

    async def _work(self, attempt_ids: set[UUID]) -> list[str]:
        """The work subjects under which these attempts were queued. Ringing for one that is taken costs a look."""
        if not attempt_ids:
            return []
        load = await self._store.load("attempt", dict.fromkeys(attempt_ids, 0))
        queued = [stream.events[0].event for stream in load.streams.values() if stream.events]
        return [work(event.executor, event.queue) for event in queued if isinstance(event, AttemptQueued)]
