"""Appends to the memory store, whole or not at all, as a statement is."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from contracts.events.attempt import AttemptSucceeded
from libs.eventstore.adapter import digest_bytes
from libs.eventstore.heads import check_values, heads_of
from libs.eventstore.memory.claims import MemoryClaims
from libs.eventstore.memory.clockwork import MemoryClockwork
from libs.eventstore.memory.deliveries import MemoryDeliveries
from libs.eventstore.memory.eras import MemoryEras
from libs.eventstore.memory.heads import MemoryHeads
from libs.eventstore.memory.holding import Head, Ready, earliest
from libs.eventstore.port import (
    Append,
    Appended,
    BatchResult,
    Load,
    OutboxToken,
    Recorded,
    Snapshot,
    SnapshotKey,
    Written,
)
from libs.eventstore.rows import Batch, BirthItem, EventRow, persons_of, prepare


@dataclass(slots=True)
class _Statement:
    """What one append writes, gathered before it counts."""

    won: set[UUID] = field(default_factory=set)
    born: set[int] = field(default_factory=set)


class MemoryStore(MemoryEras, MemoryClockwork, MemoryClaims, MemoryDeliveries, MemoryHeads):
    """Every port of the event store. `clock` is its time: set it, or `advance` it. `mint_claim` makes nonces.

    Once an era has begun, whoever uses this store is taken to have been started again.
    """

    async def load(
        self,
        category: str,
        after: Mapping[UUID, int],
        *,
        beside: Collection[tuple[str, UUID]] = (),
        snapshots: SnapshotKey | None = None,
    ) -> Load:
        heads_of(category)
        found = {i: tuple(self._streams[i]) for other, i in beside if i in self.rows[heads_of(other).category]}
        return Load(
            now=self.clock,
            streams={stream_id: self._loaded(category, stream_id, v, snapshots) for stream_id, v in after.items()},
            beside=found,
            outputs={key: self._blobs[key] for key in _outputs(found) if key in self._blobs},
        )

    async def keep_snapshots(self, schema: bytes, snapshots: Sequence[Snapshot]) -> None:
        newest = {snapshot.stream_id: snapshot.version for snapshot in snapshots}
        self._snapshots = {
            key: kept for key, kept in self._snapshots.items() if kept.version >= newest.get(kept.stream_id, 0)
        }
        for snapshot in snapshots:
            self._snapshots.setdefault((snapshot.stream_id, schema, snapshot.version), snapshot)

    async def append(self, category: str, appends: Sequence[Append]) -> BatchResult:
        await self.mapper.people.know(persons_of(appends, self.mapper))
        batch = prepare(category, appends, self.mapper)
        for append in appends:
            check_values(batch.heads, append.columns)
            for birth in append.births:
                check_values(heads_of(birth.category), birth.columns)
        for _, _, digest, _ in batch.blobs:
            digest_bytes(digest)

        statement = _Statement()
        fates = {a.stream_id: self._gate(batch, a, statement) for a in sorted(appends, key=lambda a: a.stream_id)}
        skipped = self._bear(batch, statement)
        self._queue(batch, statement)
        for parent, group, digest, content in batch.blobs:
            if parent in statement.won:
                self._blobs.setdefault((group, digest), content)
        written, outbox = self._write(batch, statement)
        if category == "inbound":
            for stream_id in statement.won:
                self._deliveries.pop(stream_id, None)
        return BatchResult(
            appended=tuple(replace(fates[a.stream_id], skipped=tuple(skipped.get(a.stream_id, ()))) for a in appends),
            written=written,
            era=self.era_number,
            outbox=outbox,
        )

    def _gate(self, batch: Batch, append: Append, statement: _Statement) -> Appended:
        heads = self.rows[batch.heads.category]
        head = heads.get(append.stream_id)
        version, digest = (0, b"") if head is None else (head.version, head.digest)
        claim = None if head is None else head.claim
        if version != append.version or (append.claim is not None and append.claim != claim):
            return Appended(append.stream_id, "lost", version, digest)
        if append.deadline is not None and self.clock > append.deadline:
            return Appended(append.stream_id, "late", version, digest)
        for guard in append.guards:
            guarded = self.rows[guard.category].get(guard.stream_id)
            if guarded is None or guarded.state not in guard.states:
                return Appended(append.stream_id, "guarded", version, digest)
        if append.set_claim is not None:
            claim = append.set_claim
        lease_until = None if head is None or append.release else head.lease_until
        won = Head(
            tenant_group=append.metadata.tenant_group if head is None else head.tenant_group,
            tenant=append.metadata.tenant if head is None else head.tenant,
            version=append.version + len(append.events),
            state=append.state,
            digest=batch.digests[append.stream_id],
            wake_at=earliest(append.wake_at, lease_until),
            columns=dict(append.columns),
            claim=None if append.release else claim,
            lease_until=lease_until,
        )
        heads[append.stream_id] = won
        statement.won.add(append.stream_id)
        return Appended(append.stream_id, "won", won.version, won.digest)

    def _bear(self, batch: Batch, statement: _Statement) -> dict[UUID, list[UUID]]:
        """Insert the births of those that won; return by parent those that were skipped."""
        skipped: dict[UUID, list[UUID]] = {}
        for birth in batch.births:
            heads = self.rows[birth.row.category]
            if birth.parent not in statement.won:
                continue
            if birth.row.stream_id in heads:
                skipped.setdefault(birth.parent, []).append(birth.row.stream_id)
                continue
            heads[birth.row.stream_id] = _newborn(birth)
            statement.born.add(birth.number)
        return skipped

    def _queue(self, batch: Batch, statement: _Statement) -> None:
        for birth in batch.births:
            if birth.number in statement.born and birth.row.work_subject is not None:
                self._ready.setdefault(birth.row.stream_id, Ready(birth.row.work_subject, self.clock))
        for append in batch.appends:
            if append.stream_id in statement.won:
                for attempt_id, subject in append.ready.items():
                    self._ready.setdefault(attempt_id, Ready(subject, self.clock))

    def _write(self, batch: Batch, statement: _Statement) -> tuple[tuple[Written, ...], OutboxToken | None]:
        rows = [
            row
            for row in batch.events
            if (row.written.stream_id in statement.won if row.birth is None else row.birth in statement.born)
        ]
        if not rows:
            return (), None
        self._xid += 1
        for row in rows:
            self._record(row)
        written = tuple(row.written for row in rows)
        token = OutboxToken(self.era_number, self._xid)
        self._unpublished[token] = (self.clock, written)
        return written, token

    def _record(self, row: EventRow) -> None:
        written = row.written
        sealed = Recorded(
            stream_id=written.stream_id,
            version=written.version,
            category=written.category,
            type=written.type,
            event=self.mapper.sealed(row.event, written.stream_id),
            metadata=self.mapper.sealed(written.metadata, written.stream_id),
            recorded_at=self.clock,
            era=self.era_number,
            xid=self._xid,
            position=len(self._facts) + 1,
            digest=row.digest,
        )
        self._facts.append(sealed)
        self._show(sealed)

    async def move_wakes(self, category: str, moves: Sequence[tuple[UUID, int, datetime | None]]) -> None:
        heads = self.rows[heads_of(category).category]
        for stream_id, version, wake_at in moves:
            head = heads.get(stream_id)
            if head is not None and head.version == version:
                live = head.lease_until if head.lease_until is not None and head.lease_until > self.clock else None
                heads[stream_id] = replace(head, wake_at=earliest(wake_at, live))

    async def published(self, token: OutboxToken) -> None:
        self._unpublished.pop(token, None)

    async def flush(self) -> None:
        """Nothing waits here."""

    async def close(self) -> None:
        """Nothing to close."""

    async def events(
        self, category: str, stream_ids: Collection[UUID], *, tenant_group: UUID
    ) -> Mapping[UUID, tuple[Recorded, ...]]:
        found = {}
        for stream_id in stream_ids:
            head = self.rows[category].get(stream_id)
            if head is not None and head.tenant_group == tenant_group:
                found[stream_id] = tuple(self._streams[stream_id])
        return found


def _newborn(birth: BirthItem) -> Head:
    return Head(
        tenant_group=birth.metadata.tenant_group,
        tenant=birth.metadata.tenant,
        version=1,
        state=birth.row.state,
        digest=birth.digest,
        wake_at=birth.row.wake_at,
        columns=dict(birth.row.columns),
    )


def _outputs(streams: Mapping[UUID, Sequence[Recorded]]) -> list[tuple[UUID, str]]:
    return [
        (recorded.metadata.tenant_group, recorded.event.output.digest)
        for facts in streams.values()
        for recorded in facts
        if isinstance(recorded.event, AttemptSucceeded)
    ]
