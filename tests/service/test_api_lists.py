"""Lists over 100,000 runs: every filter begins at its page, and pages hold still while the record grows."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from contracts.base import Principal
from contracts.errors import Rejected
from services.api.queries import Queries
from services.api.run_lists import RunFilter, Statement, counting, listing

RUNS = 100_000
READ_MAX = 2_000
"""Rows that a page of 50 may look at."""
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
GROUP, ELSEWHERE = UUID(int=1), UUID(int=2)
BUSY, RARE = UUID(int=11), UUID(int=12)
PARENT = UUID(int=99)

ADMIN = Principal(
    kind="user",
    id=UUID(int=10),
    name="admin@example.com",
    tenant_group=GROUP,
    tenant=UUID(int=3),
    roles=frozenset({"platform_admin"}),
)
PERSON = ADMIN.model_copy(
    update={"id": RARE, "name": "rare@example.com", "roles": frozenset(), "projects": frozenset({"small", "none"})}
)

FILL = """
insert into run_heads(stream_id, tenant_group, tenant, version, appended, state, digest, definition_id, hash, initiator,
                      project_id, created_at, finished_at, cost_microdollars, parent, search)
select ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
       case when n % 10 = 0 then $2::uuid else $1::uuid end, $1::uuid, 8, 1,
       case when n = 71 then 'failed' when n % 1000 = 1 then 'waiting_decision' else 'completed' end, '\\x00',
       case when n % 5000 = 3 then 'rare' else 'often' end, repeat('0', 64),
       case when n % 20000 = 7 then $4::uuid else $3::uuid end,
       case when n % 9000 = 11 then 'small' when n % 2 = 0 then 'large' end,
       -- Three runs share each moment, so that the id has to tell them apart.
       $5::timestamptz + (n / 3) * interval '1 second', case when n % 1000 = 1 then null else $5::timestamptz end, 5,
       case when n in (1701, 1801) then $6::uuid end,
       array['env=prod', 'jira_key=FERRY-' || n]
  from generate_series(1, $7::int) n"""

NEWER = """
insert into run_heads(stream_id, tenant_group, tenant, version, appended, state, digest, definition_id, hash, initiator,
                      created_at, cost_microdollars)
values (gen_random_uuid(), $1, $1, 1, 1, 'created', '\\x00', 'often', '', $2, $3::timestamptz + interval '1 year', 0)"""


async def fill(owner_pool: asyncpg.Pool, runs: int) -> None:
    await owner_pool.execute(FILL, GROUP, ELSEWHERE, BUSY, RARE, BEGAN, PARENT, runs)
    await owner_pool.execute("vacuum analyze run_heads")


FILTERS: dict[str, tuple[Principal, RunFilter, int]] = {
    "everything": (ADMIN, RunFilter(), 50),
    "a definition of few runs": (ADMIN, RunFilter(definition_id="rare"), 20),
    "the open ones": (ADMIN, RunFilter(states={"running", "waiting_decision"}), 50),
    "a project of few runs": (ADMIN, RunFilter(project_id="small"), 12),
    "an initiator of few runs": (ADMIN, RunFilter(initiated_by=RARE), 5),
    "a moment": (
        ADMIN,
        RunFilter(created_from=BEGAN + timedelta(seconds=99), created_before=BEGAN + timedelta(seconds=120)),
        50,
    ),
    "a value of the context": (ADMIN, RunFilter(context={"jira_key": "FERRY-142"}), 1),
    "two values of the context": (ADMIN, RunFilter(context={"jira_key": "FERRY-142", "env": "prod"}), 1),
    "what was begun from a run": (ADMIN, RunFilter(parent=PARENT), 2),
    "what a person may see": (PERSON, RunFilter(), 17),
    "what a person may see of a definition": (PERSON, RunFilter(definition_id="rare"), 0),
}


async def test_every_filter_begins_at_its_page(pool: asyncpg.Pool, owner_pool: asyncpg.Pool) -> None:
    await fill(owner_pool, RUNS)
    queries = Queries(pool)
    for name, (caller, filter_, count) in FILTERS.items():
        statement = listing(caller, filter_, limit=51)
        plan = await _explained(pool, statement)
        looked_at = sum(node["Actual Rows"] * node["Actual Loops"] + _removed(node) for node in _reads(plan))
        assert looked_at <= READ_MAX, f"{name}: {looked_at} rows were looked at"
        assert not [node for node in _reads(plan) if node["Node Type"] == "Seq Scan"], name
        page = await queries.runs(caller, filter_, limit=50)
        assert len(page.items) == count, name
        if count < 50:
            counted = counting(caller, filter_)
            assert await pool.fetchval(counted.sql, *counted.arguments) == count, name
    began = time.monotonic()
    page = await queries.runs(ADMIN, RunFilter(states={"failed"}), limit=50)
    assert len(page.items) == 1
    assert time.monotonic() - began < 2, "a rare state among those that ended: found by looking through them"


async def test_pages_hold_still_while_runs_are_started(pool: asyncpg.Pool, owner_pool: asyncpg.Pool) -> None:
    await fill(owner_pool, 1_000)
    wanted = await pool.fetch(
        "select stream_id from run_heads where tenant_group = $1 order by created_at desc, stream_id", GROUP
    )
    seen: list[UUID] = []
    cursor = None
    while True:
        page = await Queries(pool).runs(ADMIN, RunFilter(), limit=7, cursor=cursor)
        seen += [run.run_id for run in page.items]
        if (cursor := page.next_cursor) is None:
            break
        await owner_pool.execute(NEWER, GROUP, BUSY, BEGAN)
    assert len(wanted) == 900
    assert seen == [row["stream_id"] for row in wanted]


async def test_the_pages_of_a_person_are_what_it_may_see(pool: asyncpg.Pool, owner_pool: asyncpg.Pool) -> None:
    await fill(owner_pool, 1_000)
    caller = PERSON.model_copy(update={"projects": frozenset({"small", "large"})})
    wanted = await pool.fetch(
        "select stream_id from run_heads where tenant_group = $1 and (initiator = $2 or project_id = any($3))"
        " order by created_at desc, stream_id",
        GROUP,
        caller.id,
        ["small", "large"],
    )
    seen: list[UUID] = []
    cursor = None
    while True:
        page = await Queries(pool).runs(caller, RunFilter(), limit=20, cursor=cursor)
        seen += [run.run_id for run in page.items]
        if (cursor := page.next_cursor) is None:
            break
    assert seen == [row["stream_id"] for row in wanted]
    assert len(seen) == await Queries(pool).count_runs(caller, RunFilter()) > 100


async def test_a_text_that_no_run_is_found_by_is_refused(pool: asyncpg.Pool) -> None:
    with pytest.raises(Rejected, match="200 characters") as refused:
        await Queries(pool).runs(ADMIN, RunFilter(context={"jira_key": "x" * 200}), limit=1)
    assert (refused.value.code, refused.value.errors[0].path) == ("context.too_long", "query.context.jira_key")


async def _explained(pool: asyncpg.Pool, statement: Statement) -> dict[str, Any]:
    text = await pool.fetchval(f"explain (analyze, format json) {statement.sql}", *statement.arguments)
    plan: dict[str, Any] = json.loads(text)[0]["Plan"]
    return plan


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


def _reads(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [node for node in _nodes(plan) if _of_runs(node)]


def _of_runs(node: dict[str, Any]) -> bool:
    return node.get("Relation Name") == "run_heads"


def _removed(node: dict[str, Any]) -> float:
    return float(node.get("Rows Removed by Filter", 0) * node["Actual Loops"])
