"""The event store in one process, with the semantics of the real one and a clock by hand: for tests and simulation.

Nothing waits for anything here: each call happens at once and whole, as a statement does.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from contracts.events.attempt import AttemptQueued, AttemptSucceeded
from contracts.events.run import RunForked
from libs.domain.lifecycle import RUN_ACTIVE
from libs.eventstore.adapter import digest_bytes
from libs.eventstore.eras import Begun
from libs.eventstore.heads import HEADS, check_values, heads_of
from libs.eventstore.keyring import Keyring
from libs.eventstore.mapper import Mapper
from libs.eventstore.people import MemoryPeople
from libs.eventstore.port import (
    Append,
    Appended,
    Arrived,
    BatchResult,
    Claimed,
    Delivery,
    Due,
    Earlier,
    Era,
    HeadView,
    LineHead,
    Load,
    Loaded,
    OutboxToken,
    Page,
    Recorded,
    Snapshot,
    SnapshotKey,
    Woken,
    Written,
    nothing_of,
)
from libs.eventstore.rows import Batch, BirthItem, EventRow, persons_of, prepare


@dataclass(frozen=True, slots=True)
class Head:
    """A head row. `columns` are the derived ones."""

    tenant_group: UUID
    tenant: UUID
    version: int
    state: str
    digest: bytes
    wake_at: datetime | None
    columns: Mapping[str, Any]
    claim: UUID | None = None
    lease_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Ready:
    subject: str
    queued_at: datetime
    priority: int = 0


_HELD: Final = (
    "rows",
    "history",
    "era_number",
    "_began_at",
    "_facts",
    "_streams",
    "_snapshots",
    "_blobs",
    "_ready",
    "_unpublished",
    "_deliveries",
    "_leases",
    "_incarnations",
    "_xid",
)
"""What a dump holds beside the keys of persons. Values in these are never changed, only replaced."""


@dataclass(frozen=True, slots=True)
class Dump:
    """Everything that a store held at one moment."""

    held: Mapping[str, Any]
    keys: Keyring


@dataclass(slots=True)
class _Statement:
    """What one append writes, gathered before it counts."""

    won: set[UUID] = field(default_factory=set)
    born: set[int] = field(default_factory=set)


class MemoryStore:
    """Every port of the event store. `clock` is its time: set it, or `advance` it. `mint_claim` makes nonces.

    Once an era has begun, whoever uses this store is taken to have been started again.
    """

    def __init__(
        self,
        *,
        clock: datetime = datetime(2026, 1, 1, tzinfo=UTC),
        mint_claim: Callable[[], UUID] = uuid4,
    ) -> None:
        self.clock = clock
        self.era_number = 1
        self._began_at = clock
        self.rows: dict[str, dict[UUID, Head]] = {category: {} for category in HEADS}
        self.history: list[Recorded] = []
        self.mapper = Mapper(people=MemoryPeople(destroyed=self._reread))
        self._facts: list[Recorded] = []
        self._mint_claim = mint_claim
        self._streams: dict[UUID, list[Recorded]] = {}
        self._snapshots: dict[tuple[UUID, bytes, int], Snapshot] = {}
        self._blobs: dict[tuple[UUID, str], bytes] = {}
        self._ready: dict[UUID, _Ready] = {}
        self._unpublished: dict[OutboxToken, tuple[datetime, tuple[Written, ...]]] = {}
        self._deliveries: dict[UUID, Delivery] = {}
        self._leases: dict[str, tuple[UUID, datetime]] = {}
        self._incarnations: dict[str, str] = {}
        self._xid = 0

    def advance(self, by: timedelta) -> None:
        self.clock += by

    async def now(self) -> datetime:
        return self.clock

    # EventStore

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

    def _loaded(self, category: str, stream_id: UUID, after: int, key: SnapshotKey | None = None) -> Loaded:
        head = self.rows[category].get(stream_id)
        if head is None:
            return nothing_of(stream_id)
        snapshot = (
            self._newest(stream_id, key) if key is not None and after == 0 and head.version >= key.every else None
        )
        above = after if snapshot is None else snapshot.version
        events = tuple(self._streams[stream_id][above:])
        return Loaded(
            stream_id, head.version, head.digest, head.wake_at, head.tenant_group, head.tenant, events, snapshot
        )

    def _newest(self, stream_id: UUID, key: SnapshotKey) -> Snapshot | None:
        kept = [s for (other, schema, _), s in self._snapshots.items() if (other, schema) == (stream_id, key.schema)]
        newest = max(kept, key=lambda snapshot: snapshot.version, default=None)
        if newest is None or newest.version > len(self._streams[stream_id]):
            return None
        return newest if self._streams[stream_id][newest.version - 1].digest == newest.digest else None

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
            wake_at=_earliest(append.wake_at, lease_until),
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
                self._ready.setdefault(birth.row.stream_id, _Ready(birth.row.work_subject, self.clock))
        for append in batch.appends:
            if append.stream_id in statement.won:
                for attempt_id, subject in append.ready.items():
                    self._ready.setdefault(attempt_id, _Ready(subject, self.clock))

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

    def _show(self, sealed: Recorded) -> None:
        """Let a fact be read as its keys allow."""
        recorded = sealed._replace(
            event=self.mapper.opened(sealed.event, sealed.stream_id),
            metadata=self.mapper.opened(sealed.metadata, sealed.stream_id),
        )
        self.history.append(recorded)
        self._streams.setdefault(sealed.stream_id, []).append(recorded)

    def _reread(self) -> None:
        """A key was destroyed: facts are read anew, without it."""
        self.history.clear()
        self._streams.clear()
        for sealed in self._facts:
            self._show(sealed)

    @property
    def erasures(self) -> int:
        return self.mapper.people.ring.erasures

    async def move_wakes(self, category: str, moves: Sequence[tuple[UUID, int, datetime | None]]) -> None:
        heads = self.rows[heads_of(category).category]
        for stream_id, version, wake_at in moves:
            head = heads.get(stream_id)
            if head is not None and head.version == version:
                live = head.lease_until if head.lease_until is not None and head.lease_until > self.clock else None
                heads[stream_id] = replace(head, wake_at=_earliest(wake_at, live))

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

    async def blobs(self, tenant_group: UUID, digests: Collection[str]) -> Mapping[str, bytes]:
        return {d: self._blobs[tenant_group, d] for d in digests if (tenant_group, d) in self._blobs}

    async def put_blobs(self, tenant_group: UUID, blobs: Mapping[str, bytes]) -> None:
        for digest in blobs:
            digest_bytes(digest)
        for digest, content in blobs.items():
            self._blobs.setdefault((tenant_group, digest), content)

    # Eras

    async def era(self) -> Era:
        return Era(self.era_number, self._began_at)

    async def era_goes_on(self) -> bool:
        return True

    async def of_earlier_eras(self, run_ids: Collection[UUID]) -> frozenset[UUID]:
        return frozenset(run_id for run_id in run_ids if self._era_of(run_id) < self.era_number)

    def _era_of(self, run_id: UUID) -> int:
        """The era in which a run began, or the run that it was forked from."""
        begun = self._streams.get(run_id)
        if begun is None:
            return self.era_number
        forked = (recorded.event for recorded in begun[1:2] if isinstance(recorded.event, RunForked))
        return min([begun[0].era, *(self._era_of(event.parent) for event in forked)])

    def begin_era(self) -> Begun:
        """Begin a new era, as `libs.eventstore.eras.begin_era` does."""
        is_new = self.era_number == 1 or any(recorded.era == self.era_number for recorded in self._facts)
        self.era_number += is_new
        self._began_at = self.clock
        self._incarnations.clear()
        self._leases.clear()
        return Begun(self.era_number, is_new)

    def dump(self) -> Dump:
        """Return all that is held now, for `restore`."""
        return Dump({name: _copied(getattr(self, name)) for name in _HELD}, self.mapper.people.ring.copy())

    def restore(self, dump: Dump) -> None:
        """Hold what a dump holds, and nothing else. An era is to begin next, before anybody appends."""
        for name, held in dump.held.items():
            setattr(self, name, _copied(held))
        self.mapper.people.ring = dump.keys.copy()

    # Clockwork

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

    # Claims

    async def claim(self, subjects: Collection[str] | None, *, limit: int, lease: timedelta) -> Sequence[Claimed]:
        turn = sorted(
            (-ready.priority, ready.queued_at, attempt_id)
            for attempt_id, ready in self._ready.items()
            if subjects is None or ready.subject in subjects
        )
        claimed = []
        for _, queued_at, attempt_id in turn[:limit]:
            del self._ready[attempt_id]
            head = self.rows["attempt"].get(attempt_id)
            if head is None or not self._claimable(head):
                continue
            until = self.clock + lease
            claim = self._mint_claim()
            self.rows["attempt"][attempt_id] = replace(head, claim=claim, lease_until=until, wake_at=until)
            stream = self._loaded("attempt", attempt_id, 0)
            claimed.append(Claimed(attempt_id, claim, until, queued_at, stream, self._request(stream)))
        return claimed

    def _request(self, stream: Loaded) -> bytes | None:
        birth = stream.events[0].event
        assert isinstance(birth, AttemptQueued)
        return self._blobs.get((stream.events[0].metadata.tenant_group, birth.request.digest))

    def _claimable(self, head: Head) -> bool:
        run = self.rows["run"].get(head.columns["run_id"])
        free = head.claim is None or (head.lease_until is not None and head.lease_until <= self.clock)
        return free and head.state == "queued" and run is not None and run.state in RUN_ACTIVE

    async def renew(self, claims: Collection[tuple[UUID, UUID]], *, lease: timedelta) -> frozenset[UUID]:
        held = set()
        until = self.clock + lease
        for attempt_id, claim in claims:
            head = self.rows["attempt"].get(attempt_id)
            if head is not None and head.claim == claim:
                self.rows["attempt"][attempt_id] = replace(head, lease_until=until, wake_at=until)
                held.add(attempt_id)
        return frozenset(held)

    async def waiting(self) -> Mapping[str, int]:
        return Counter(ready.subject for ready in self._ready.values())

    # Heads

    async def heads(self, category: str, stream_ids: Collection[UUID]) -> Mapping[UUID, HeadView]:
        rows = self.rows[heads_of(category).category]
        return {i: self._view(i, rows[i]) for i in stream_ids if i in rows}

    async def heads_of_runs(
        self, category: str, run_ids: Collection[UUID], *, states: Collection[str]
    ) -> Sequence[HeadView]:
        return [
            self._view(stream_id, head)
            for stream_id, head in sorted(self.rows[heads_of(category).category].items())
            if head.columns["run_id"] in run_ids and head.state in states
        ]

    async def forks_of(self, run_ids: Collection[UUID], *, states: Collection[str]) -> Sequence[UUID]:
        runs = self.rows["run"]
        found: set[UUID] = set()
        begun = frozenset(run_ids)
        while begun := frozenset(i for i, head in runs.items() if head.columns["parent"] in begun) - found:
            found |= begun
        return sorted(i for i in found if runs[i].state in states)

    async def identities(self, tenant_group: UUID, kind: str, *, name: str | None = None) -> Sequence[UUID]:
        return [
            stream_id
            for stream_id, head in sorted(self.rows["identity"].items())
            if head.tenant_group == tenant_group
            and head.state == "active"
            and head.columns["kind"] == kind
            and name in (None, head.columns["name"])
        ]

    async def open_decisions(self, tenant_group: UUID) -> Sequence[UUID]:
        return [
            stream_id
            for stream_id, head in sorted(self.rows["decision"].items())
            if head.tenant_group == tenant_group and head.state == "open"
        ]

    async def started_by(self, tenant_group: UUID, sources: Collection[str]) -> Sequence[UUID]:
        return [
            stream_id
            for stream_id, head in sorted(self.rows["definition"].items())
            if head.tenant_group == tenant_group
            and head.columns["kind"] == "workflow"
            and head.columns["enabled"]
            and not set(sources).isdisjoint(head.columns["event_sources"])
        ]

    async def declared(self, tenant_group: UUID, kind: str) -> Sequence[UUID]:
        return [
            stream_id
            for stream_id, head in sorted(self.rows["definition"].items())
            if head.tenant_group == tenant_group and head.columns["kind"] == kind
        ]

    async def waits_of_events(self, arrived: Sequence[Arrived]) -> Sequence[Sequence[UUID]]:
        return [[i for i, head in sorted(self.rows["wait"].items()) if _is_asked(head, event)] for event in arrived]

    async def earlier_events(
        self, asked: Sequence[Earlier], *, limit: int
    ) -> Sequence[Sequence[tuple[datetime, UUID]]]:
        return [
            sorted(
                (head.columns["received_at"], stream_id)
                for stream_id, head in self.rows["inbound"].items()
                if _is_earlier(stream_id, head, each)
            )[:limit]
            for each in asked
        ]

    async def scheduled(self) -> Sequence[UUID]:
        return [i for i, head in sorted(self.rows["definition"].items()) if head.columns["schedules"] > 0]

    async def lines(self, definitions: Collection[tuple[UUID, str]] | None = None) -> Sequence[LineHead]:
        found = [
            LineHead(i, head.tenant_group, head.columns["definition_id"], head.state)
            for i, head in sorted(self.rows["schedule"].items())
        ]
        if definitions is None:
            return [line for line in found if line.state != "retired"]
        return [line for line in found if (line.tenant_group, line.definition_id) in definitions]

    def _view(self, stream_id: UUID, head: Head) -> HeadView:
        return HeadView(
            stream_id=stream_id,
            version=head.version,
            state=head.state,
            run_id=head.columns.get("run_id"),
            claim=head.claim,
            lease_until=head.lease_until,
            lease_ended=head.lease_until is None or head.lease_until <= self.clock,
            finished_at=head.columns.get("finished_at"),
        )

    # Deliveries

    async def accept(self, delivery: Delivery, blobs: Mapping[str, bytes]) -> bool:
        if delivery.id in self._deliveries or delivery.id in self.rows["inbound"]:
            return False
        await self.put_blobs(delivery.tenant_group, blobs)
        self._deliveries[delivery.id] = replace(delivery, received_at=self.clock)
        return True

    async def deliveries(self, ids: Collection[UUID]) -> Sequence[Delivery]:
        return [delivery for delivery in self._in_order() if delivery.id in ids]

    async def body_of(self, delivery_id: UUID) -> str | None:
        head = self.rows["inbound"].get(delivery_id)
        if head is not None:
            return str(head.columns["body_sha256"])
        delivery = self._deliveries.get(delivery_id)
        return None if delivery is None else delivery.body_sha256

    def _in_order(self) -> list[Delivery]:
        return sorted(self._deliveries.values(), key=lambda d: (d.received_at or self.clock, d.id))


def _copied(held: Any) -> Any:
    """A copy of dicts and lists all the way down to what is never changed."""
    if isinstance(held, dict):
        return {key: _copied(value) for key, value in held.items()}
    return list(held) if isinstance(held, list) else held


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


def _is_asked(wait: Head, event: Arrived) -> bool:
    open_ = wait.state in {"opening", "open"} and wait.columns["probe"] in event.probes
    asks = open_ and wait.columns["source"] == event.source
    return wait.tenant_group == event.tenant_group and (asks or wait.columns["inbound_id"] == event.inbound_id)


def _is_earlier(inbound_id: UUID, head: Head, asked: Earlier) -> bool:
    received_at: datetime = head.columns["received_at"]
    return (
        (head.tenant_group, head.columns["source"]) == (asked.tenant_group, asked.source)
        and received_at >= asked.since
        and asked.event in (None, head.columns["event"])
        and (asked.after is None or (received_at, inbound_id) > asked.after)
    )


def _outputs(streams: Mapping[UUID, Sequence[Recorded]]) -> list[tuple[UUID, str]]:
    return [
        (recorded.metadata.tenant_group, recorded.event.output.digest)
        for facts in streams.values()
        for recorded in facts
        if isinstance(recorded.event, AttemptSucceeded)
    ]


def _earliest(*moments: datetime | None) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)
