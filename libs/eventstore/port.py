"""The port of the event store: what owners may ask of the history, in every adapter alike."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Protocol
from uuid import UUID

from contracts.base import BlobRef, Event, Metadata
from libs.domain.core import Guard
from libs.eventstore.mapper import Mapper


class Recorded(NamedTuple):
    """One fact as it stands in the history. Order of all of them: `(era, xid, position)`."""

    stream_id: UUID
    version: int
    category: str
    type: str
    event: Event
    metadata: Metadata
    recorded_at: datetime
    era: int
    xid: int
    position: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a stream added up to at a version, where its digest was `digest`. Derived: without it all is the same."""

    stream_id: UUID
    version: int
    tenant_group: UUID
    digest: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class SnapshotKey:
    """Which snapshots a reader can use: those of this `schema` (32 bytes). Streams shorter than `every` have none."""

    schema: bytes
    every: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """A stream from the version asked for, with its head. `version` 0 and an empty digest: it does not exist.

    Where there is a `snapshot`, the events are those above it.
    """

    stream_id: UUID
    version: int
    digest: bytes
    wake_at: datetime | None
    tenant_group: UUID | None
    tenant: UUID | None
    events: tuple[Recorded, ...]
    snapshot: Snapshot | None = None


def nothing_of(stream_id: UUID) -> Loaded:
    """A stream that does not exist."""
    return Loaded(stream_id, 0, b"", None, None, None, ())


@dataclass(frozen=True, slots=True)
class Load:
    """What `load` answers: the streams asked for, those beside them, and the database's clock at that moment.

    `outputs` is the content of what the attempts beside them have handed off, by its (tenant group, digest).
    """

    now: datetime
    streams: Mapping[UUID, Loaded]
    beside: Mapping[UUID, tuple[Recorded, ...]] = field(default_factory=dict)
    outputs: Mapping[tuple[UUID, str], bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BirthRow:
    """Another stream's first fact (version 1) with its head. `work_subject` also queues it in `ready`.

    `correlation` is the run that it belongs to, where that is not its parent's.
    """

    category: str
    stream_id: UUID
    event: Event
    state: str
    columns: Mapping[str, Any]
    wake_at: datetime | None
    work_subject: str | None = None
    correlation: UUID | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """What one stream of a batch wants to write.

    Refused as `lost` when the head's version is not `version`, or `claim` is given and is not the head's current claim;
    as `late` when the database's clock is past `deadline`; as `guarded` when a guard does not hold. `digest` is the
    stream's last digest as it was read (empty for a new stream). `release` clears the claim and lease in the same
    statement. `ready` queues streams that exist. `delivery` marks the inbound delivery of the same id as done.
    """

    stream_id: UUID
    version: int
    digest: bytes
    events: tuple[Event, ...]
    metadata: Metadata
    state: str
    columns: Mapping[str, Any]
    wake_at: datetime | None
    claim: UUID | None = None
    set_claim: UUID | None = None
    release: bool = False
    guards: tuple[Guard, ...] = ()
    deadline: datetime | None = None
    births: tuple[BirthRow, ...] = ()
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    ready: Mapping[UUID, str] = field(default_factory=dict)


class Written(NamedTuple):
    """One fact that the statement wrote, births included: enough for an envelope's address."""

    category: str
    stream_id: UUID
    version: int
    type: str
    metadata: Metadata


Fate = Literal["won", "lost", "guarded", "late"]


@dataclass(frozen=True, slots=True)
class Appended:
    """The fate of one `Append`. `skipped` are births whose stream existed already."""

    stream_id: UUID
    fate: Fate
    version: int
    digest: bytes
    skipped: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class OutboxToken:
    """Names the outbox row of one statement; give it to `published` once the bus has acked."""

    era: int
    xid: int


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The fates in the order of the appends, what was written, and the outbox row (None when nothing was)."""

    appended: tuple[Appended, ...]
    written: tuple[Written, ...]
    era: int
    outbox: OutboxToken | None


@dataclass(frozen=True, slots=True)
class Claimed:
    """An attempt that this runner holds until `lease_until`, unless it renews. `queued_at` is when it became ready.

    `stream` is the whole attempt, and `request` the content that its birth names; None where the claim could not see
    them as they are now.
    """

    attempt_id: UUID
    claim: UUID
    lease_until: datetime
    queued_at: datetime
    stream: Loaded | None = None
    request: bytes | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A webhook as the api stored it, before ingest recorded it."""

    id: UUID
    tenant_group: UUID
    tenant: UUID
    source: str
    adapter: str
    external_id: str
    event: str
    keys: Mapping[str, Any]
    payload: BlobRef
    body_sha256: str
    traceparent: str | None
    received_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """A stream whose `wake_at` has come."""

    category: str
    stream_id: UUID
    wake_at: datetime


@dataclass(frozen=True, slots=True)
class Woken:
    """A page of `wake_open`: how many streams were made due, and the key to go on from, None after the last page."""

    streams: int
    next: UUID | None


@dataclass(frozen=True, slots=True)
class Page:
    """A page of `in_states`: what was found in it, and the key to go on from, None after the last page."""

    stream_ids: tuple[UUID, ...]
    next: UUID | None


class EventStore(Protocol):
    """Loads and appends streams. Every method may raise `contracts.errors.Unavailable` and may then be repeated."""

    @property
    def mapper(self) -> Mapper:
        """How facts of this record are read, by those that read them with SQL of their own."""
        ...

    @property
    def erasures(self) -> int:
        """Grows when persons turn out to be erased: what was kept of facts that were read before may name them."""
        ...

    async def load(
        self,
        category: str,
        after: Mapping[UUID, int],
        *,
        beside: Collection[tuple[str, UUID]] = (),
        snapshots: SnapshotKey | None = None,
    ) -> Load:
        """Read streams of a category with their events above the given version (0 for all), in one query.

        `beside` are whole streams of other categories that are wanted too, by (category, stream); absent ones are left
        out. Attempts among them bring their outputs. `snapshots` may stand in for the events of streams that are
        wanted from their beginning: the newest one of a stream, unless the history has another digest at its version.
        """
        ...

    async def keep_snapshots(self, schema: bytes, snapshots: Sequence[Snapshot]) -> None:
        """Keep snapshots of different streams in place of all older ones of theirs, whatever their schema."""
        ...

    async def append(self, category: str, appends: Sequence[Append]) -> BatchResult:
        """Write a batch in one gated statement. A stream stands at most once in it; an empty `events` is refused.

        Raises:
            contracts.errors.Unavailable: the database did not answer; nothing is known about the batch. Or, as
                ``era.ended``, the database was restored: nothing was written.
            contracts.errors.Broken: the statement itself was refused (a value that does not fit, for example);
                nothing of the batch was written.
        """
        ...

    async def move_wakes(self, category: str, moves: Sequence[tuple[UUID, int, datetime | None]]) -> None:
        """Set `wake_at` without a fact, each gated on (stream, version). A lost gate is no error."""
        ...

    async def published(self, token: OutboxToken) -> None:
        """Forget an outbox row: its envelopes were acked. May be deferred to the next statement."""
        ...

    async def events(
        self, category: str, stream_ids: Collection[UUID], *, tenant_group: UUID
    ) -> Mapping[UUID, tuple[Recorded, ...]]:
        """Read whole streams of one tenant group, each in order of version; absent ones are left out."""
        ...

    async def blobs(self, tenant_group: UUID, digests: Collection[str]) -> Mapping[str, bytes]:
        """Read content by digest. Missing digests are left out."""
        ...

    async def put_blobs(self, tenant_group: UUID, blobs: Mapping[str, bytes]) -> None:
        """Store content under its digest, for facts that will follow."""
        ...

    async def now(self) -> datetime:
        """The database's clock."""
        ...


@dataclass(frozen=True, slots=True)
class Era:
    """An era of the record. Numbers may come again when a backup of an earlier era is restored; moments do not."""

    number: int
    began_at: datetime


class Eras(Protocol):
    """What a restore of the database changes. Each may raise `contracts.errors.Unavailable`."""

    async def era(self) -> Era:
        """The era that appends of this process are of: the one that it found."""
        ...

    async def era_goes_on(self) -> bool:
        """Whether what is appended here may still be written: no other era has begun since this process did."""
        ...

    async def of_earlier_eras(self, run_ids: Collection[UUID]) -> frozenset[UUID]:
        """Those of these runs that began before the current era, or are forks of such: what they wrote is not known."""
        ...


class Clockwork(Protocol):
    """What the scheduler needs: due wakes, the outbox's leftovers and a lease of its own."""

    async def due(self, category: str, *, limit: int, after: tuple[datetime, UUID] | None = None) -> Sequence[Due]:
        """Streams whose `wake_at` has passed, oldest first, from a key onwards."""
        ...

    async def due_deliveries(self, *, older_than: timedelta, limit: int) -> Sequence[UUID]:
        """Deliveries that ingest has not recorded though they are this old."""
        ...

    async def unpublished(
        self, *, older_than: timedelta, limit: int
    ) -> Sequence[tuple[OutboxToken, Sequence[Written]]]:
        """Outbox rows that nobody forgot, with what their statements wrote, oldest first."""
        ...

    async def hold_lease(self, name: str, holder: UUID, *, for_: timedelta) -> bool:
        """Take or keep a named lease until now + `for_`; False while another holder has it."""
        ...

    async def release_lease(self, name: str, holder: UUID) -> None:
        """Give a lease up early. No error when it is not held."""
        ...

    async def wake_open(
        self, category: str, states: Collection[str], *, limit: int, after: UUID | None = None
    ) -> Woken:
        """Make streams in these states due now, unless they are due already; looks at `limit` streams from a key on.

        The page is bounded by what is looked at: most streams ended long ago, and no index knows the states.
        """
        ...

    async def in_states(self, category: str, states: Collection[str], *, limit: int, after: UUID | None = None) -> Page:
        """Streams in these states, in order of id; looks at `limit` streams from a key on, as `wake_open` does."""
        ...

    async def incarnations(self) -> Mapping[str, str]:
        """The bus's streams as they were when everything open was last woken for them: stream → stamp."""
        ...

    async def record_incarnations(self, stamps: Mapping[str, str | None]) -> None:
        """Remember streams of the bus; None forgets one, so that it counts as never seen."""
        ...


class Claims(Protocol):
    """Work that runners take: `ready` rows, claims with a nonce, leases."""

    async def claim(self, subjects: Collection[str] | None, *, limit: int, lease: timedelta) -> Sequence[Claimed]:
        """Take ready attempts (`skip locked`, by priority then age) whose head is queued and whose run is active.

        `None` takes every subject. Rows whose attempt or run does not fit any more are dropped. The attempt's
        `wake_at` becomes the end of the lease.
        """
        ...

    async def renew(self, claims: Collection[tuple[UUID, UUID]], *, lease: timedelta) -> frozenset[UUID]:
        """Prolong (attempt, claim) pairs in one statement; returns the attempts that are still held."""
        ...

    async def waiting(self) -> Mapping[str, int]:
        """How many ready rows stand under each subject."""
        ...


@dataclass(frozen=True, slots=True)
class HeadView:
    """A head row as owners look at it without its history. `lease_ended` is judged by the database's clock.

    `finished_at` is of runs alone.
    """

    stream_id: UUID
    version: int
    state: str
    run_id: UUID | None
    claim: UUID | None = None
    lease_until: datetime | None = None
    lease_ended: bool = True
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class LineHead:
    """The head row of a schedule, for comparing it with what its definition declares."""

    stream_id: UUID
    tenant_group: UUID
    definition_id: str
    state: str


@dataclass(frozen=True, slots=True)
class Arrived:
    """An event as its waits are looked up. `probes` are all that a wait which it fits may stand under."""

    inbound_id: UUID
    tenant_group: UUID
    source: str
    probes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Earlier:
    """Recorded events of a source since a moment, of one name where `event` gives it; a page goes on behind `after`."""

    tenant_group: UUID
    source: str
    event: str | None
    since: datetime
    after: tuple[datetime, UUID] | None = None


class Heads(Protocol):
    """Reads of head rows, which change with every append. Ids come from messages, never from callers."""

    async def heads(self, category: str, stream_ids: Collection[UUID]) -> Mapping[UUID, HeadView]:
        """The heads of these streams; absent ones are left out."""
        ...

    async def heads_of_runs(
        self, category: str, run_ids: Collection[UUID], *, states: Collection[str]
    ) -> Sequence[HeadView]:
        """The attempts, decisions, effects or waits of these runs that are in one of the states."""
        ...

    async def forks_of(self, run_ids: Collection[UUID], *, states: Collection[str]) -> Sequence[UUID]:
        """The runs in one of the states that came of these, or of what came of them in any state."""
        ...

    async def identities(self, tenant_group: UUID, kind: str, *, name: str | None = None) -> Sequence[UUID]:
        """The identities of a kind that a tenant group has and that were not ended; of one name where it is given."""
        ...

    async def holders(self, tenant_group: UUID, held: Collection[str]) -> Sequence[UUID]:
        """The active users of a tenant group who have any of these (see `libs.domain.identity.held_names`), by id.

        Those of whom a row does not say what they have are among them.
        """
        ...

    async def open_decisions(self, tenant_group: UUID) -> Sequence[UUID]:
        """The decisions of a tenant group that nobody has answered yet."""
        ...

    async def started_by(self, tenant_group: UUID, sources: Collection[str]) -> Sequence[UUID]:
        """The enabled workflows of a tenant group that have a trigger on one of the event sources."""
        ...

    async def declared(self, tenant_group: UUID, kind: str) -> Sequence[UUID]:
        """The workflows, sources, servers or channels that a tenant group has declared, in order of id."""
        ...

    async def waits_of_events(self, arrived: Sequence[Arrived]) -> Sequence[Sequence[UUID]]:
        """For each event the waits that are open under one of its probes, and those that took it already."""
        ...

    async def earlier_events(
        self, asked: Sequence[Earlier], *, limit: int
    ) -> Sequence[Sequence[tuple[datetime, UUID]]]:
        """For each question a page of events as (received at, event), oldest first; shorter than `limit` at the end."""
        ...

    async def scheduled(self) -> Sequence[UUID]:
        """The workflows of all tenant groups whose current version has schedules."""
        ...

    async def lines(self, definitions: Collection[tuple[UUID, str]] | None = None) -> Sequence[LineHead]:
        """The schedules of these (tenant group, definition id); without them all that are not retired."""
        ...


class Deliveries(Protocol):
    """Webhooks between the door and ingest."""

    async def accept(self, delivery: Delivery, blobs: Mapping[str, bytes]) -> bool:
        """Store a delivery under its derived id; False when it is there already."""
        ...

    async def deliveries(self, ids: Collection[UUID]) -> Sequence[Delivery]:
        """Read deliveries that are not recorded yet. An `append` to category `inbound` removes them from here."""
        ...

    async def body_of(self, delivery_id: UUID) -> str | None:
        """The SHA-256 of the body that a delivery had, recorded or not; None when there is no such delivery."""
        ...


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where the record does not agree with itself."""

    category: str
    stream_id: UUID
    kind: Literal["chain", "content", "head", "missing_head", "missing_events", "snapshot"]
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` saw."""

    streams: int
    events: int
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        return not self.differences


class Store(EventStore, Eras, Clockwork, Claims, Deliveries, Heads, Protocol):
    """Everything that services ask of the record, in one adapter."""

    async def flush(self) -> None:
        """Forget the outbox rows that were acked and wait for an append to delete them. Raises `Unavailable`."""
        ...

    async def close(self) -> None:
        """Flush what can be flushed. Whose the connections are closes them."""
        ...
