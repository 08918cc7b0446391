"""Streams loaded and appended, and the store that is all of the port."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from libs.eventstore.mapper import Mapper
from libs.eventstore.port.claims import Claims
from libs.eventstore.port.clockwork import Clockwork
from libs.eventstore.port.deliveries import Deliveries
from libs.eventstore.port.eras import Eras
from libs.eventstore.port.heads import Heads
from libs.eventstore.port.read import Load, Recorded, Snapshot, SnapshotKey
from libs.eventstore.port.written import Append, BatchResult, OutboxToken


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


class Store(EventStore, Eras, Clockwork, Claims, Deliveries, Heads, Protocol):
    """Everything that services ask of the record, in one adapter."""

    async def flush(self) -> None:
        """Forget the outbox rows that were acked and wait for an append to delete them. Raises `Unavailable`."""
        ...

    async def close(self) -> None:
        """Flush what can be flushed. Whose the connections are closes them."""
        ...
