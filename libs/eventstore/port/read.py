"""Shapes of what is read: a fact, a snapshot, a stream, and what one query answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from contracts.base import Event, Metadata


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
