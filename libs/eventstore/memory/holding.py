"""What the memory store holds, and how a stream is read from it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from libs.eventstore.adapter import digest_bytes
from libs.eventstore.heads import HEADS
from libs.eventstore.mapper import Mapper
from libs.eventstore.people import MemoryPeople
from libs.eventstore.port import (
    Delivery,
    Loaded,
    OutboxToken,
    Recorded,
    Snapshot,
    SnapshotKey,
    Written,
    nothing_of,
)


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
class Ready:
    """A row of the queue of work."""

    subject: str
    queued_at: datetime
    priority: int = 0


class Holding:
    """Everything at rest: the clock, rows, facts, blobs, the queue of work, the outbox."""

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
        self._ready: dict[UUID, Ready] = {}
        self._unpublished: dict[OutboxToken, tuple[datetime, tuple[Written, ...]]] = {}
        self._deliveries: dict[UUID, Delivery] = {}
        self._leases: dict[str, tuple[UUID, datetime]] = {}
        self._incarnations: dict[str, str] = {}
        self._xid = 0

    def advance(self, by: timedelta) -> None:
        self.clock += by

    async def now(self) -> datetime:
        return self.clock

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

    async def blobs(self, tenant_group: UUID, digests: Collection[str]) -> Mapping[str, bytes]:
        return {d: self._blobs[tenant_group, d] for d in digests if (tenant_group, d) in self._blobs}

    async def put_blobs(self, tenant_group: UUID, blobs: Mapping[str, bytes]) -> None:
        for digest in blobs:
            digest_bytes(digest)
        for digest, content in blobs.items():
            self._blobs.setdefault((tenant_group, digest), content)

    def _in_order(self) -> list[Delivery]:
        return sorted(self._deliveries.values(), key=lambda d: (d.received_at or self.clock, d.id))

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


def earliest(*moments: datetime | None) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)
