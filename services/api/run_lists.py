"""The statement that lists runs, newest first: whatever is asked, it begins at the page and reads little beyond it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from contracts.base import Principal
from contracts.errors import Rejected
from libs.domain.access import is_administrator
from libs.domain.lifecycle import RUN_OPEN
from libs.domain.run.head import SEARCH_TERM_CHARS_MAX
from minutebook.models.problem import ProblemItem
from services.api.where import Where

COLUMNS: Final = """
  r.stream_id, r.definition_id, r.hash, r.state, r.stage, r.outcome, r.reason, r.project_id, r.initiator, r.created_at,
  r.finished_at, r.cost_microdollars, r.variant, r.parent, i.name as initiator_name"""

INITIATOR: Final = """
  left join identity_heads i on i.stream_id = r.initiator and i.tenant_group = r.tenant_group"""

CONTEXT_VALUES_MAX: Final = 20

_ORDER: Final = "order by r.created_at desc, r.stream_id limit"


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs; None and empty take all. `context` holds plain values, by key."""

    definition_id: str | None = None
    hash: str | None = None
    states: Collection[str] | None = None
    project_id: str | None = None
    initiated_by: UUID | None = None
    parent: UUID | None = None
    created_from: datetime | None = None
    created_before: datetime | None = None
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Statement:
    sql: str
    arguments: tuple[Any, ...]


Key = tuple[datetime, UUID]
"""The sort key of a run: when it was created, and its id."""


def listing(caller: Principal, filter_: RunFilter, *, limit: int, after: Key | None = None) -> Statement:
    """Select `limit` runs that the caller sees, newest first, after a sort key.

    What the caller started and what is filed under each of its projects are read by an index each and merged: an `or`
    over both would walk through everybody's runs. A value of the context and a parent are looked up first, since few
    runs have them; the planner would not know.
    """
    where = Where()
    table, lookup = _sought(where, filter_)
    _narrow(where, filter_)
    if after is not None:
        # The first half lets the index begin at the cursor; the second alone would scan from the newest.
        where.add("r.created_at <= {}", after[0])
        where.add("(r.created_at < {} or r.stream_id > {})", *after)
    where.add("r.tenant_group = {}", caller.tenant_group)
    count = where.place(limit)
    page = f"select r.stream_id, r.created_at from {table} r where {where}"  # noqa: S608  our own texts
    if not is_administrator(caller):
        mine, projects = where.place(caller.id), where.place(sorted(caller.projects))
        page = f"""
          (({page} and r.initiator = {mine} {_ORDER} {count})
           union
           (select m.stream_id, m.created_at from unnest({projects}::text[]) as p(project_id)
             cross join lateral ({page} and r.project_id = p.project_id {_ORDER} {count}) m))"""  # noqa: S608  ours
        page = f"select r.stream_id, r.created_at from {page} r"  # noqa: S608  our own texts
    sql = f"""{lookup}
      select {COLUMNS} from ({page} {_ORDER} {count}) page
        join run_heads r on r.stream_id = page.stream_id {INITIATOR}
       order by r.created_at desc, r.stream_id"""  # noqa: S608  our own texts
    return Statement(sql, tuple(where.arguments))


def counting(caller: Principal, filter_: RunFilter) -> Statement:
    """Count the runs that the caller sees."""
    where = Where()
    where.visible(caller, "r")
    _narrow(where, filter_)
    table, lookup = _sought(where, filter_)
    sql = f"{lookup} select count(*) from {table} r where {where}"  # noqa: S608  our own texts
    return Statement(sql, tuple(where.arguments))


def _narrow(where: Where, filter_: RunFilter) -> None:
    for column, value in (
        ("definition_id", filter_.definition_id),
        ("hash", filter_.hash),
        ("project_id", filter_.project_id),
        ("initiator", filter_.initiated_by),
    ):
        if value is not None:
            where.add(f"r.{column} = {{}}", value)
    if filter_.states is not None:
        where.add("r.state = any({})", sorted(filter_.states))
        if RUN_OPEN.issuperset(filter_.states):
            where.conditions.append("r.finished_at is null")  # the few open ones have an index of their own
    if filter_.created_from is not None:
        where.add("r.created_at >= {}", filter_.created_from)
    if filter_.created_before is not None:
        where.add("r.created_at < {}", filter_.created_before)


def _sought(where: Where, filter_: RunFilter) -> tuple[str, str]:
    """The table to read from, and what makes it: all runs, or those that a parent or values of the context name."""
    conditions = []
    if filter_.parent is not None:
        conditions.append(f"parent = {where.place(filter_.parent)}")
    if filter_.context:
        terms = where.place([_term(key, value) for key, value in sorted(filter_.context.items())])
        conditions.append(f"search @> {terms}::text[] and search <> '{{}}'")  # its index leaves out the empty ones
    if not conditions:
        return "run_heads", ""
    found = " and ".join(conditions)
    return "sought", f"with sought as materialized (select * from run_heads where {found})"  # noqa: S608  ours


def _term(key: str, value: str) -> str:
    """A value of the context as `libs.domain.run.state.search_terms` has it.

    Raises:
        contracts.errors.Rejected: 422, runs are not found by texts of this length.
    """
    term = f"{key}={value}"
    if len(term) > SEARCH_TERM_CHARS_MAX:
        item = ProblemItem(path=f"query.context.{key[:SEARCH_TERM_CHARS_MAX]}", message="too long to be found by")
        raise Rejected(
            "context.too_long",
            f"runs are found by values that have at most {SEARCH_TERM_CHARS_MAX} characters with their key",
            errors=(item,),
        )
    return term
