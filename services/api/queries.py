"""Lists from head rows. Every statement has the tenant group as a parameter and shows what the caller may see."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg

from contracts.base import Principal
from contracts.errors import Rejected
from libs.domain.access import is_administrator, sees_run
from libs.domain.lifecycle import RUN_ACTIVE
from libs.postgres.pool import fetch
from minutebook.models import Page, Person, RunSummary
from services.api import cursors

_RUN_COLUMNS: Final = """
  r.stream_id, r.definition_id, r.hash, r.state, r.stage, r.outcome, r.reason, r.project_id, r.initiator, r.created_at,
  r.finished_at, r.cost_microdollars, i.name as initiator_name"""

_INITIATOR: Final = """
  left join identity_heads i on i.stream_id = r.initiator and i.tenant_group = r.tenant_group"""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list; None takes all."""

    definition_id: str | None = None
    states: Collection[str] | None = None
    project_id: str | None = None
    initiated_by: UUID | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class OpenDecision:
    """An open decision that the caller sees; whether it may answer, its role says."""

    stream_id: UUID
    run_id: UUID
    opened_at: datetime


@dataclass(slots=True)
class _Where:
    """Conditions with their arguments. Texts are ours alone; what callers send goes into `arguments`."""

    arguments: list[Any] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)

    def add(self, condition: str, *arguments: Any) -> None:
        """Add a condition with one `{}` per argument."""
        places = []
        for argument in arguments:
            self.arguments.append(argument)
            places.append(f"${len(self.arguments)}")
        self.conditions.append(condition.format(*places))

    def place(self, argument: Any) -> str:
        self.arguments.append(argument)
        return f"${len(self.arguments)}"

    def visible(self, caller: Principal, table: str) -> None:
        """What `libs.domain.access.sees_run` says, as SQL over a head row with an initiator and a project."""
        self.add(f"{table}.tenant_group = {{}}", caller.tenant_group)
        if not is_administrator(caller):
            self.add(
                f"({table}.initiator = {{}} or {table}.project_id = any({{}}))", caller.id, sorted(caller.projects)
            )

    def __str__(self) -> str:
        return " and ".join(self.conditions)


class Queries:
    """Reads of one service's pool."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def runs(
        self, caller: Principal, filter_: RunFilter, *, limit: int, cursor: str | None = None
    ) -> Page[RunSummary]:
        """Runs that the caller sees, newest first."""
        where = _Where()
        where.visible(caller, "r")
        if filter_.definition_id is not None:
            where.add("r.definition_id = {}", filter_.definition_id)
        if filter_.states is not None:
            where.add("r.state = any({})", sorted(filter_.states))
        if filter_.project_id is not None:
            where.add("r.project_id = {}", filter_.project_id)
        if filter_.initiated_by is not None:
            where.add("r.initiator = {}", filter_.initiated_by)
        if filter_.created_from is not None:
            where.add("r.created_at >= {}", filter_.created_from)
        if filter_.created_before is not None:
            where.add("r.created_at < {}", filter_.created_before)
        if cursor is not None:
            created_at, stream_id = cursors.decode(cursor, cursors.instant, UUID)
            # The first half lets the index begin at the cursor; the second alone would scan from the newest.
            where.add("r.created_at <= {}", created_at)
            where.add("(r.created_at < {} or r.stream_id > {})", created_at, stream_id)
        rows = await fetch(
            self._pool,
            f"select {_RUN_COLUMNS} from run_heads r {_INITIATOR} where {where}"  # noqa: S608  our own texts
            f" order by r.created_at desc, r.stream_id limit {where.place(limit + 1)}",
            *where.arguments,
        )
        items = tuple(_summary(row) for row in rows[:limit])
        more = cursors.encode(items[-1].created_at, items[-1].run_id) if len(rows) > limit else None
        return Page(items=items, next_cursor=more)

    async def summaries(self, tenant_group: UUID, run_ids: Collection[UUID]) -> Mapping[UUID, RunSummary]:
        """Runs by id. The caller has judged that they may be seen."""
        rows = await fetch(
            self._pool,
            f"select {_RUN_COLUMNS} from run_heads r {_INITIATOR}"  # noqa: S608  our own texts
            " where r.tenant_group = $1 and r.stream_id = any($2)",
            tenant_group,
            list(run_ids),
        )
        return {row["stream_id"]: _summary(row) for row in rows}

    async def require_run(self, caller: Principal, run_id: UUID) -> None:
        """Hold that the caller sees a run.

        Raises:
            contracts.errors.Rejected: 404.
        """
        rows = await fetch(
            self._pool,
            "select initiator, project_id from run_heads where tenant_group = $1 and stream_id = $2",
            caller.tenant_group,
            run_id,
        )
        if not rows or not sees_run(caller, rows[0]["initiator"], rows[0]["project_id"]):
            raise Rejected("run.not_found", f"there is no run {run_id}", status=404)

    async def require_decision(self, caller: Principal, decision_id: UUID) -> None:
        """Hold that the caller sees a decision's run.

        Raises:
            contracts.errors.Rejected: 404.
        """
        rows = await fetch(
            self._pool,
            "select initiator, project_id from decision_heads where tenant_group = $1 and stream_id = $2",
            caller.tenant_group,
            decision_id,
        )
        if not rows or not sees_run(caller, rows[0]["initiator"], rows[0]["project_id"]):
            raise Rejected("decision.not_found", f"there is no decision {decision_id}", status=404)

    async def open_decisions(
        self, caller: Principal, *, limit: int, after: tuple[datetime, UUID] | None
    ) -> list[OpenDecision]:
        """Open decisions of runs that the caller sees and that are not suspended, the longest waiting first."""
        where = _Where()
        where.visible(caller, "d")
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

    async def effect_ids(self, caller: Principal, *, state: str | None, limit: int, after: UUID | None) -> list[UUID]:
        """Effects of runs that the caller sees, in order of id."""
        where = _Where()
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
        where = _Where()
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
    )
