"""Lists from head rows. Every statement has the tenant group as a parameter and shows what the caller may see."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg

from contracts.base import Principal
from contracts.errors import Rejected
from libs.domain.access import sees_run, sees_to_decide
from libs.domain.lifecycle import RUN_ACTIVE
from libs.postgres.pool import fetch
from minutebook.models import EventSummary, Page, Person, RunSummary
from minutebook.models.states import ScheduleState
from services.api import cursors
from services.api.run_lists import COLUMNS, INITIATOR, RunFilter, counting, listing
from services.api.where import Where

_TAKEN: Final = "from wait_heads w where w.inbound_id = n.stream_id and w.tenant_group = n.tenant_group"
"""The waits that took the event `n`."""


@dataclass(frozen=True, slots=True)
class OpenDecision:
    """An open decision that the caller sees; whether it may answer, its role says."""

    stream_id: UUID
    run_id: UUID
    opened_at: datetime


@dataclass(frozen=True, slots=True)
class ScheduleLine:
    """A schedule as its head has it, and when the run that it started last ended."""

    stream_id: UUID
    definition_id: str
    line: str
    timezone: str
    state: ScheduleState
    wake_at: datetime | None
    last_run: UUID | None
    last_run_ended_at: datetime | None


class Queries:
    """Reads of one service's pool."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def runs(
        self, caller: Principal, filter_: RunFilter, *, limit: int, cursor: str | None = None
    ) -> Page[RunSummary]:
        """Runs that the caller sees, newest first."""
        after = None
        if cursor is not None:
            created_at, stream_id = cursors.decode(cursor, cursors.instant, UUID)
            after = (created_at, stream_id)
        statement = listing(caller, filter_, limit=limit + 1, after=after)
        rows = await fetch(self._pool, statement.sql, *statement.arguments)
        items = tuple(_summary(row) for row in rows[:limit])
        more = cursors.encode(items[-1].created_at, items[-1].run_id) if len(rows) > limit else None
        return Page(items=items, next_cursor=more)

    async def count_runs(self, caller: Principal, filter_: RunFilter) -> int:
        """How many runs that the caller sees the filter takes."""
        statement = counting(caller, filter_)
        rows = await fetch(self._pool, statement.sql, *statement.arguments)
        return int(rows[0]["count"])

    async def children(self, caller: Principal, run_id: UUID) -> tuple[UUID, ...]:
        """Runs that the caller sees and that restart a run or were forked from it, oldest first."""
        where = Where()
        where.visible(caller, "r")
        where.add("r.parent = {}", run_id)
        rows = await fetch(
            self._pool,
            f"select r.stream_id from run_heads r where {where} order by r.created_at, r.stream_id",  # noqa: S608  ours
            *where.arguments,
        )
        return tuple(row["stream_id"] for row in rows)

    async def summaries(self, tenant_group: UUID, run_ids: Collection[UUID]) -> Mapping[UUID, RunSummary]:
        """Runs by id. The caller has judged that they may be seen."""
        rows = await fetch(
            self._pool,
            f"select {COLUMNS} from run_heads r {INITIATOR}"  # noqa: S608  our own texts
            " where r.tenant_group = $1 and r.stream_id = any($2)",
            tenant_group,
            list(run_ids),
        )
        return {row["stream_id"]: _summary(row) for row in rows}

    async def require_run(self, caller: Principal, run_id: UUID) -> None:
        """Hold that the caller sees a run, or somebody does for whom it may decide while the run asks people.

        Raises:
            contracts.errors.Rejected: 404.
        """
        rows = await fetch(
            self._pool,
            "select initiator, project_id, exists(select from decision_heads d where d.run_id = r.stream_id"
            " and d.state = 'open') as asks from run_heads r where tenant_group = $1 and stream_id = $2",
            caller.tenant_group,
            run_id,
        )
        sees = sees_to_decide if rows and rows[0]["asks"] else sees_run
        if not rows or not sees(caller, rows[0]["initiator"], rows[0]["project_id"]):
            raise Rejected("run.not_found", f"there is no run {run_id}", status=404)

    async def require_decision(self, caller: Principal, decision_id: UUID) -> None:
        """Hold that the caller sees a decision's run, or somebody does for whom it may decide.

        Raises:
            contracts.errors.Rejected: 404.
        """
        rows = await fetch(
            self._pool,
            "select initiator, project_id from decision_heads where tenant_group = $1 and stream_id = $2",
            caller.tenant_group,
            decision_id,
        )
        if not rows or not sees_to_decide(caller, rows[0]["initiator"], rows[0]["project_id"]):
            raise Rejected("decision.not_found", f"there is no decision {decision_id}", status=404)

    async def require_effect(self, caller: Principal, effect_id: UUID) -> None:
        """Hold that the caller sees an effect's run.

        Raises:
            contracts.errors.Rejected: 404.
        """
        rows = await fetch(
            self._pool,
            "select r.initiator, r.project_id from effect_heads e"
            " join run_heads r on r.stream_id = e.run_id and r.tenant_group = e.tenant_group"
            " where e.tenant_group = $1 and e.stream_id = $2",
            caller.tenant_group,
            effect_id,
        )
        if not rows or not sees_run(caller, rows[0]["initiator"], rows[0]["project_id"]):
            raise Rejected("effect.not_found", f"there is no effect {effect_id}", status=404)

    async def require_event(self, caller: Principal, event_id: UUID) -> None:
        """Hold that an inbound event is the tenant group's.

        Raises:
            contracts.errors.Rejected: 404.
        """
        if not await self._is_ours("inbound_heads", caller, event_id):
            raise Rejected("event.not_found", f"there is no inbound event {event_id}", status=404)

    async def require_schedule(self, caller: Principal, schedule_id: UUID) -> None:
        """Hold that a schedule is the tenant group's.

        Raises:
            contracts.errors.Rejected: 404.
        """
        if not await self._is_ours("schedule_heads", caller, schedule_id):
            raise Rejected("schedule.not_found", f"there is no schedule {schedule_id}", status=404)

    async def _is_ours(self, table: str, caller: Principal, stream_id: UUID) -> bool:
        rows = await fetch(
            self._pool,
            f"select from {table} where tenant_group = $1 and stream_id = $2",
            caller.tenant_group,
            stream_id,
        )
        return bool(rows)

    async def open_decisions(
        self, caller: Principal, *, limit: int, after: tuple[datetime, UUID] | None
    ) -> list[OpenDecision]:
        """Open decisions that the caller may see, of runs that are not suspended, the longest waiting first."""
        where = Where()
        where.visible_to_decide(caller, "d")
        where.conditions.append("d.state = 'open'")
        where.add("r.state = any({})", sorted(RUN_ACTIVE))
        if after is not None:
            where.add("(d.opened_at, d.stream_id) > ({}, {})", *after)
        rows = await fetch(
            self._pool,
            "select d.stream_id, d.run_id, d.opened_at from decision_heads d"  # noqa: S608  our own texts
            " join run_heads r on r.stream_id = d.run_id and r.tenant_group = d.tenant_group"
            f" where {where} order by d.opened_at, d.stream_id limit {where.place(limit)}",
            *where.arguments,
        )
        return [OpenDecision(row["stream_id"], row["run_id"], row["opened_at"]) for row in rows]

    async def runs_with_tasks(
        self, caller: Principal, *, limit: int, after: tuple[datetime, UUID] | None
    ) -> list[tuple[datetime, UUID]]:
        """Active runs that the caller sees and that wait for a manual step, the oldest first: when, and which."""
        where = Where()
        where.visible(caller, "r")
        where.conditions.append("r.tasks > 0")
        where.add("r.state = any({})", sorted(RUN_ACTIVE))
        if after is not None:
            where.add("(r.created_at, r.stream_id) > ({}, {})", *after)
        rows = await fetch(
            self._pool,
            "select r.created_at, r.stream_id from run_heads r"  # noqa: S608  our own texts
            f" where {where} order by r.created_at, r.stream_id limit {where.place(limit)}",
            *where.arguments,
        )
        return [(row["created_at"], row["stream_id"]) for row in rows]

    async def effect_ids(self, caller: Principal, *, state: str | None, limit: int, after: UUID | None) -> list[UUID]:
        """Effects of runs that the caller sees, in order of id."""
        where = Where()
        where.visible(caller, "r")
        where.add("e.tenant_group = {}", caller.tenant_group)
        if state is not None:
            where.add("e.state = {}", state)
        if after is not None:
            where.add("e.stream_id > {}", after)
        rows = await fetch(
            self._pool,
            "select e.stream_id from effect_heads e"  # noqa: S608  our own texts
            " join run_heads r on r.stream_id = e.run_id and r.tenant_group = e.tenant_group"
            f" where {where} order by e.stream_id limit {where.place(limit)}",
            *where.arguments,
        )
        return [row["stream_id"] for row in rows]

    async def definition_ids(self, caller: Principal, *, limit: int, after: str | None) -> list[tuple[UUID, str]]:
        """Workflows of the caller's tenant group as (stream, id), in order of id."""
        where = Where()
        where.add("d.tenant_group = {}", caller.tenant_group)
        where.conditions.append("d.kind = 'workflow'")
        if after is not None:
            where.add("d.name > {}", after)
        rows = await fetch(
            self._pool,
            "select d.stream_id, d.name from definition_heads d"  # noqa: S608  our own texts
            f" where {where} order by d.name limit {where.place(limit)}",
            *where.arguments,
        )
        return [(row["stream_id"], row["name"]) for row in rows]

    async def events(
        self,
        caller: Principal,
        *,
        source: str | None,
        unmatched: bool | None,
        limit: int,
        after: tuple[datetime, UUID] | None,
    ) -> list[EventSummary]:
        """Inbound events of the caller's tenant group, newest first. The caller has judged that they may be seen."""
        where = Where()
        where.add("n.tenant_group = {}", caller.tenant_group)
        if source is not None:
            where.add("n.source = {}", source)
        if unmatched is not None:
            lost = f"n.unmatched is not null and not exists (select {_TAKEN})"
            where.conditions.append(f"({lost})" if unmatched else f"not ({lost})")
        if after is not None:
            where.add("n.received_at <= {}", after[0])
            where.add("(n.received_at < {} or n.stream_id > {})", *after)
        rows = await fetch(
            self._pool,
            "select n.stream_id, n.source, n.external_id, n.event, n.state, n.received_at, n.unmatched,"  # noqa: S608
            f" array(select w.run_id {_TAKEN} order by w.run_id) as taken_by from inbound_heads n where {where}"
            f" order by n.received_at desc, n.stream_id limit {where.place(limit)}",
            *where.arguments,
        )
        return [_event(row) for row in rows]

    async def takers(self, caller: Principal, event_id: UUID) -> tuple[UUID, ...]:
        """The runs whose waiting step took an event of the caller's tenant group, also long after it came."""
        rows = await fetch(
            self._pool,
            f"select w.run_id from inbound_heads n, lateral (select w.run_id {_TAKEN}) w"  # noqa: S608  our own texts
            " where n.tenant_group = $1 and n.stream_id = $2 order by 1",
            caller.tenant_group,
            event_id,
        )
        return tuple(row["run_id"] for row in rows)

    async def schedules(
        self,
        caller: Principal,
        *,
        definition_id: str | None,
        state: str | None,
        limit: int,
        after: tuple[str, UUID] | None,
    ) -> list[ScheduleLine]:
        """Schedules of the caller's tenant group, in order of their definition."""
        where = Where()
        where.add("s.tenant_group = {}", caller.tenant_group)
        if definition_id is not None:
            where.add("s.definition_id = {}", definition_id)
        if state is not None:
            where.add("s.state = {}", state)
        if after is not None:
            where.add("(s.definition_id, s.stream_id) > ({}, {})", *after)
        rows = await fetch(
            self._pool,
            "select s.stream_id, s.definition_id, s.line, s.timezone, s.state, s.wake_at, s.last_run,"  # noqa: S608
            " r.finished_at as last_run_ended_at from schedule_heads s"
            f" left join run_heads r on r.stream_id = s.last_run and r.tenant_group = s.tenant_group where {where}"
            f" order by s.definition_id, s.stream_id limit {where.place(limit)}",
            *where.arguments,
        )
        return [ScheduleLine(**row) for row in rows]


def _event(row: asyncpg.Record) -> EventSummary:
    return EventSummary(
        event_id=row["stream_id"],
        source=row["source"],
        event=row["event"],
        external_id=row["external_id"],
        state=row["state"],
        received_at=row["received_at"],
        unmatched=None if row["taken_by"] else row["unmatched"],
        taken_by=tuple(row["taken_by"]),
    )


def _summary(row: asyncpg.Record) -> RunSummary:
    return RunSummary(
        run_id=row["stream_id"],
        definition_id=row["definition_id"],
        definition_hash=row["hash"],
        state=row["state"],
        stage=row["stage"],
        outcome=row["outcome"],
        reason=row["reason"],
        project_id=row["project_id"],
        initiated_by=Person(id=row["initiator"], email=row["initiator_name"]),
        created_at=row["created_at"],
        finished_at=row["finished_at"],
        cost_microdollars=row["cost_microdollars"],
        variant=row["variant"],
        parent=row["parent"],
    )
