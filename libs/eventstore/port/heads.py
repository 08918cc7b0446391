"""Head rows as owners look at them, without the history below."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID


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
