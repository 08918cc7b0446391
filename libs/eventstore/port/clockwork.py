"""What is due, what the bus was not told, and leases: the scheduler's side."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from libs.eventstore.port.written import OutboxToken, Written


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
