"""Concurrency keys and schedules under all services, a real bus and a real database: asked for over HTTP, in YAML."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
import nats
import pytest

from contracts.base import JsonObject
from minutebook.client import ApiError
from tests.support.fleet import EMAIL, ENDED, Fleet, OwnNats, found, open_fleet, own_nats
from tests.support.postgres import Database

_WORKING: Final = """
select stream_id, type from workflow_history
 where type in ('run.started', 'run.completed', 'run.cancelled', 'run.superseded') order by era, xid, position"""


def definition(name: str, **more: Any) -> dict[str, str]:
    """A workflow of one step that repeats the run's context."""
    keys = "".join(f"\n  {key}: {value}" for key, value in more.items())
    text = f"""
workflow:
  id: {name}
  name: {name}
  run_as: {EMAIL}
  triggers: [{{ kind: manual, roles: [developer] }}]{keys}
  stages: [{{ key: only, steps: [{{ key: say, kind: agent, agent: echo, prompt: prompts/say.md }}] }}]
"""
    return {f"workflows/{name}/workflow.yaml": text, f"workflows/{name}/prompts/say.md": "Say it."}


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[OwnNats]:
    async with own_nats(tmp_path) as server:
        yield server


@pytest.fixture
async def fleet(database: Database, bus: OwnNats, tmp_path: Path) -> AsyncIterator[Fleet]:
    async with open_fleet(database.app_dsn, database.owner_dsn, bus.url, tmp_path, runner_slots=16) as fleet:
        yield fleet


async def fetch(fleet: Fleet, sql: str, *args: Any) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(fleet.owner_dsn)
    try:
        rows: list[asyncpg.Record] = await connection.fetch(sql, *args)
        return rows
    finally:
        await connection.close()


async def states(fleet: Fleet, name: str) -> Counter[str]:
    rows = await fetch(fleet, "select state, count(*) as n from run_heads where definition_id = $1 group by 1", name)
    return Counter({row["state"]: row["n"] for row in rows})


async def all_over(fleet: Fleet, name: str, count: int) -> Counter[str]:
    """Wait until so many runs have ended, and say how."""

    async def look() -> Counter[str] | None:
        seen = await states(fleet, name)
        return seen if sum(seen[state] for state in (*ENDED, "superseded")) == count else None

    return await found(look, within=120)


async def idle(fleet: Fleet, *keys: str) -> None:
    """Wait until nobody works under these keys or waits for them; there are no others."""

    async def look() -> bool | None:
        heads = await fetch(fleet, "select key, state, holders, queued from admission_heads order by key")
        return [tuple(head) for head in heads] == [(key, "idle", 0, 0) for key in keys] or None

    await found(look)


async def most_at_once(fleet: Fleet) -> int:
    """How many runs worked at the same time, at most."""
    working: set[UUID] = set()
    most = 0
    for row in await fetch(fleet, _WORKING):
        if row["type"] == "run.started":
            working.add(row["stream_id"])
        else:
            working.discard(row["stream_id"])
        most = max(most, len(working))
    return most


@pytest.mark.parametrize("limit", [1, 3])
async def test_two_hundred_starts_under_one_key_never_work_more_than_may_and_all_end(fleet: Fleet, limit: int) -> None:
    concurrency = f'{{ key: "{{{{context.team}}}}", limit: {limit} }}'
    await fleet.client.sync(definition("busy", concurrency=concurrency))
    count, in_flight = 200, asyncio.Semaphore(40)

    async def start() -> None:
        async with in_flight:
            await fleet.client.start_run("busy", {"team": "core"})

    async with asyncio.TaskGroup() as starts:
        for _ in range(count):
            starts.create_task(start())
    assert await all_over(fleet, "busy", count) == {"completed": count}
    assert await most_at_once(fleet) == limit
    await idle(fleet, "core")
    assert (await fleet.verified()).ok


async def test_of_rapid_starts_that_coalesce_the_newest_is_left_and_a_full_queue_refuses(fleet: Fleet) -> None:
    await fleet.client.sync(
        definition("newest", concurrency="{ mode: coalesce }")
        | definition("full", concurrency='{ key: "{{context.team}}", max_queued: 1 }')
    )
    slow: JsonObject = {"echo_seconds": 3, "team": "core"}
    first = (await fleet.client.start_run("newest", slow)).run_id
    rapid = [(await fleet.client.start_run("newest", {"n": n})).run_id for n in range(5)]
    assert await all_over(fleet, "newest", 6) == {"completed": 2, "superseded": 4}
    for run_id in (first, rapid[-1]):
        assert (await fleet.client.run(run_id)).state == "completed"

    await fleet.client.start_run("full", slow)
    await fleet.client.start_run("full", slow)

    async def one_waits() -> bool | None:
        return bool(await fetch(fleet, "select from admission_heads where key = 'core' and queued = 1")) or None

    await found(one_waits)
    with pytest.raises(ApiError) as refused:
        await fleet.client.start_run("full", slow)
    assert (refused.value.problem.status, refused.value.problem.code) == (429, "admission.full")
    await fleet.client.start_run("full", {"team": "other"})
    assert await all_over(fleet, "full", 3) == {"completed": 3}


async def test_what_was_asked_and_given_back_is_found_again_when_the_bus_lost_it(fleet: Fleet, bus: OwnNats) -> None:
    """Requests and returns stood in a bus that nobody read, and are gone with it. One key has no stream yet."""
    await fleet.client.sync(definition("busy", concurrency='{ key: "{{context.team}}" }'))
    for _ in range(3):
        await fleet.client.start_run("busy", {"team": "core", "echo_seconds": 1})

    async def two_wait() -> bool | None:
        return bool(await fetch(fleet, "select from admission_heads where holders = 1 and queued = 2")) or None

    await found(two_wait)
    client = await nats.connect(bus.url, allow_reconnect=False)
    await client.jsm().delete_consumer("HISTORY", "scheduler-history")
    await client.close()
    await fleet.client.start_run("busy", {"team": "other"})
    await bus.kill()
    bus.wipe()
    await bus.start()
    assert await all_over(fleet, "busy", 4) == {"completed": 4}
    await idle(fleet, "core", "other")


async def test_a_schedule_starts_runs_by_the_clock_and_follows_its_definition(fleet: Fleet) -> None:
    every = '[{ kind: schedule, cron: "* * * * * *", overlap: allow }, { kind: schedule, every: 1s }]'
    files = definition("clock")
    path = "workflows/clock/workflow.yaml"
    files[path] = files[path].replace("[{ kind: manual, roles: [developer] }]", every)
    await fleet.client.sync(files)

    async def some_ended() -> int | None:
        ended = (await states(fleet, "clock"))["completed"]
        return ended if ended >= 6 else None

    await found(some_ended)
    rows = await fetch(
        fleet, "select payload->'trigger'->>'key' as key from workflow_history where type = 'run.created'"
    )
    keys = [row["key"] for row in rows]
    assert len(keys) == len(set(keys)), "one run per slot"
    assert {key.rpartition(" UTC:")[0] for key in keys} == {"schedule:* * * * * *", "schedule:every 1 s"}

    await fleet.client.sync(definition("clock"))

    async def retired() -> bool | None:
        lines = await fetch(fleet, "select state from schedule_heads")
        return [line["state"] for line in lines] == ["retired"] * 2 or None

    await found(retired)
    assert (await fleet.verified()).ok
