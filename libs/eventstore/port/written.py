"""Shapes of what is written: what one statement is asked to append, and what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from contracts.base import Event, Metadata
from libs.domain.core import Guard


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
