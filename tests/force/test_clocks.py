"""Two replicas of every service, one with its wall clock a minute ahead and one a minute behind: nobody can tell."""

import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
import httpx
import pytest

from contracts import ids
from libs.audit.sealed import check_seals
from libs.audit.seals import seals_of
from libs.audit.signing import Keyring
from libs.bus.declare import declare
from services.dev.people import ADMINISTRATOR, GROUP
from services.host.roster import ORDER
from tests.chaos.fleet import Fleet, open_fleet
from tests.chaos.ground import Ground, identity, open_ground
from tests.chaos.people import People
from tests.force.moments import FILES, LONG_SECONDS, SCRIPTS, WORKFLOWS
from tests.support.clocks import WrongClocks, wrong_clocks
from tests.support.fleet import found
from tests.support.postgres import Database
from tests.support.stack import PREFIX, environment

APART_SECONDS: Final = 60
"""How far each clock is from the database's: one of two replicas ahead, the other behind."""

EACH: Final = 12
"""Runs of every workflow, at two doors in turn."""

FEW: Final = 2
"""Runs of each that show what is usual, while every clock is right."""

LATE_SECONDS_MAX: Final = 20
"""How late a moment may be kept on a machine that does much beside: far less than the clocks are apart."""

TOKEN_SECONDS: Final = 6
FROZEN_SECONDS: Final = 8.0
"""Longer than a door waits for an answer."""

LEAD: Final = "lena@example.com"
MOMENTS: Final = frozenset(
    {"decision.opened", "run.step_waiting", "run.step_delayed", "run.step_retrying", "schedule.fired"}
)

Facts = frozenset[tuple[str, int]]
"""Of one run: how many of each type."""

_OVER: Final = """
select count(*) filter (where state in ('completed', 'failed', 'suspended')) as over,
       count(*) filter (where state = 'completed') as completed,
       (select count(*) from effect_heads where run_id = any($1) and state in ('declared', 'pending'))
         + (select count(*) from decision_heads where run_id = any($1) and state = 'open') as left_over
  from run_heads where stream_id = any($1)"""
_FACTS: Final = """
select metadata->>'correlation' as run_id, type, count(*) as n from workflow_history
 where metadata->>'correlation' = any($1) group by 1, 2"""
_WAITS_FOR_EVENT: Final = "select 1 from run_heads where stream_id = $1 and state = 'waiting_event'"
_REMINDED: Final = "select 1 from workflow_history where stream_id = $1 and type = 'decision.reminded'"
_MOMENTS: Final = """
select s.type::text as set, t.type::text as kept, (t.payload->>'at')::timestamptz as at,
       (s.payload->>case s.type when 'decision.opened' then 'due_at' when 'run.step_retrying' then 'not_before'
                                when 'schedule.fired' then 'due_at' else 'until' end)::timestamptz as due_at
  from workflow_history s join lateral (
    select * from workflow_history t
     where t.stream_id = s.stream_id and t.version > s.version - (t.type = 'schedule.fired')::int
       and t.type = case s.type when 'decision.opened' then 'decision.reminded' when 'run.step_waiting' then
             'run.step_succeeded' when 'schedule.fired' then 'schedule.fired' else 'run.step_queued' end
     order by t.version limit 1) t on true
 where s.type in ('decision.opened', 'schedule.fired', 'run.step_retrying', 'run.step_delayed')
    or s.type = 'run.step_waiting' and s.payload->>'until' is not null"""
"""Facts that set a moment, and the first fact that follows once it has come."""

_SLOTS: Final = """
select count(*) filter (where type = 'schedule.skipped') as skipped,
       count(*) filter (where type = 'schedule.fired') as fired,
       count(distinct payload->>'slot') filter (where type = 'schedule.fired') as slots,
       count(distinct payload->>'run_id') filter (where type = 'schedule.fired') as runs
  from workflow_history where type in ('schedule.skipped', 'schedule.fired')"""
_BACKWARDS: Final = """
select * from (
  select stream_id, version, type, recorded_at, lag(recorded_at) over stream as recorded_before,
         (payload->>'at')::timestamptz as at, lag((payload->>'at')::timestamptz) over stream as before
    from workflow_history window stream as (partition by stream_id order by version)) facts
 where recorded_at < recorded_before or at < before or at > recorded_at or recorded_at - at > $1"""
_LEASES_LOST: Final = "select stream_id from workflow_history where type = 'attempt.lease_lost'"


@pytest.fixture
async def ground(database: Database, nats_url: str, tmp_path: Path) -> AsyncIterator[Ground]:
    await declare(nats_url)
    opened = open_ground(
        database.app_dsn, database.owner_dsn, nats_url, tmp_path, files=FILES, scripts=SCRIPTS, seal_seconds=1
    )
    async with opened as ground:
        yield ground


@pytest.fixture
def clocks(tmp_path: Path) -> WrongClocks:
    return wrong_clocks(tmp_path)


@pytest.mark.parametrize("seconds", [APART_SECONDS, -APART_SECONDS])
def test_a_clock_is_shifted_and_the_monotonic_one_is_not(clocks: WrongClocks, seconds: int) -> None:
    program = "import datetime, time; print(time.time(), datetime.datetime.now().timestamp(), time.monotonic())"
    told = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(**clocks.ahead(seconds)),
        capture_output=True,
        text=True,
        check=True,
    )
    told_time, told_now, told_monotonic = map(float, told.stdout.split())
    assert told_time - time.time() == pytest.approx(seconds, abs=LATE_SECONDS_MAX)
    assert told_now - time.time() == pytest.approx(seconds, abs=LATE_SECONDS_MAX)
    assert told_monotonic - time.monotonic() == pytest.approx(0, abs=LATE_SECONDS_MAX)


async def test_replicas_whose_clocks_are_minutes_apart_keep_every_moment(ground: Ground, clocks: WrongClocks) -> None:
    async with open_fleet(ground, ORDER) as fleet:
        usual = await _played(ground, [People(fleet, random.Random(1))], FEW)
    envs = [clocks.ahead(seconds) for _ in ORDER for seconds in (APART_SECONDS, -APART_SECONDS)]
    async with open_fleet(ground, [name for name in ORDER for _ in range(2)], envs=envs) as fleet:
        doors = [People(fleet, random.Random(door), door=door) for door in (0, 1)]
        seen = await _played(ground, doors, EACH)
        await _ends_of_tokens(ground, fleet)
        await _late_asks(ground, fleet, doors)
        said = fleet.said()
    assert _apart(said) > timedelta(seconds=2 * APART_SECONDS - LATE_SECONDS_MAX), "they do live at different times"
    for name in WORKFLOWS:
        other = [sorted(facts ^ next(iter(usual[name]))) for facts in seen[name] ^ usual[name]]
        assert other == [], f"{name} takes the same facts as with right clocks"
    writes = Counter(call["meta"]["minutebook/run"] for call in ground.calls() if _is_write(call))
    assert set(writes.values()) == {1}
    assert writes.total() == (FEW + EACH) * len(WORKFLOWS) + 2
    await _kept(ground)
    await _sealed(ground)
    assert (await ground.verified()).ok
    assert [line for line in said if line["level"] in ("error", "critical")] == []


async def _played(ground: Ground, doors: Sequence[People], each: int) -> dict[str, set[Facts]]:
    """Play runs of every workflow to their ends; returns of each workflow the facts that its runs are made of."""
    async with AsyncExitStack() as exit_:
        for people in doors:
            await exit_.enter_async_context(people)
        names = [name for name in WORKFLOWS for _ in range(each)]
        run_ids = await asyncio.gather(
            *(_play(ground, doors, name, f"{name}-{len(doors)}-{number}") for number, name in enumerate(names))
        )
        await _over(ground, run_ids)
    assert [again for people in doors for again in people.again] == [], "nothing was refused as late"
    facts: dict[str, set[Facts]] = {name: set() for name in WORKFLOWS}
    rows = await ground.fetch(_FACTS, [str(run_id) for run_id in run_ids])
    for name, run_id in zip(names, run_ids, strict=True):
        facts[name].add(frozenset((row["type"], row["n"]) for row in rows if row["run_id"] == str(run_id)))
    return facts


async def _play(ground: Ground, doors: Sequence[People], name: str, key: str) -> UUID:
    """Start a run at one door, approve it at the other, and send the event that it may wait for."""
    starts, answers = doors[0], doors[-1]
    if int(key.rpartition("-")[2]) % 2:
        starts, answers = answers, starts
    run_id = await starts.start(name, {"key": key, "echo_seconds": LONG_SECONDS}, key=key)
    decision_id = ids.decision(run_id, "approval", 1)
    if name == "reminded":
        await _seen(ground, _REMINDED, decision_id)
    await answers.decide(decision_id, "approve", by=LEAD, missing=True)
    if name == "told":
        await _seen(ground, _WAITS_FOR_EVENT, run_id)
        event = {"event": "replied", "external_id": key, "keys": {"key": key}}
        told = await starts.send("POST", "/api/public/workflows/events/replies", by=ADMINISTRATOR, json=event)
        assert told.status_code in (200, 202), told.text
    return run_id


async def _ends_of_tokens(ground: Ground, fleet: Fleet) -> None:
    """A token counts at both doors until its end, and at neither after it."""
    (row,) = await ground.fetch("select minutebook_now() as now")
    ends_at = row["now"] + timedelta(seconds=TOKEN_SECONDS)
    async with identity(ground.settings, ground.secrets) as people:
        minted = await people.mint_key(
            await people.provision_group(GROUP), name="soon over", roles=["developer"], expires_at=ends_at
        )
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {minted.secret}"}, timeout=15) as http:

        async def answers() -> list[int]:
            return [(await http.get(f"{slot.url}{PREFIX}/runs")).status_code for slot in fleet.of("api")]

        async def refused() -> datetime | None:
            if await answers() != [401, 401]:
                return None
            (row,) = await ground.fetch("select minutebook_now() as now")
            now: datetime = row["now"]
            return now

        assert await answers() == [200, 200]
        seen = await found(refused, within=TOKEN_SECONDS + LATE_SECONDS_MAX)
    assert seen >= ends_at


async def _late_asks(ground: Ground, fleet: Fleet, doors: Sequence[People]) -> None:
    """An answer whose owners all stand still is refused at either door, and what comes to them late is not done."""
    async with AsyncExitStack() as exit_:
        for people in doors:
            await exit_.enter_async_context(people)
        run_ids = [
            await people.start("approved", {"key": key}, key=key) for people, key in zip(doors, "ab", strict=True)
        ]
        decisions = [ids.decision(run_id, "approval", 1) for run_id in run_ids]
        for decision_id in decisions:
            await _seen(ground, "select 1 from decision_heads where stream_id = $1", decision_id)
        owners = asyncio.gather(*(fleet.freeze(slot, seconds=FROZEN_SECONDS) for slot in fleet.of("decision")))
        headers = {"authorization": f"Bearer {ground.tokens[LEAD]}", "idempotency-key": "late"}
        async with httpx.AsyncClient(headers=headers, timeout=15) as http:
            late = await asyncio.gather(
                *(
                    http.post(f"{slot.url}{PREFIX}/decisions/{decision_id}/reject", json={"comment": "no"})
                    for slot, decision_id in zip(fleet.of("api"), decisions, strict=True)
                )
            )
        assert not owners.done()
        assert [response.status_code for response in late] == [503, 503]
        await owners
        for people, decision_id in zip(doors, decisions, strict=True):
            await people.decide(decision_id, "approve", by=LEAD)
        await _over(ground, run_ids)


async def _kept(ground: Ground) -> None:
    """No moment was kept early or much too late, no slot left out or taken twice, and no stream goes back in time."""
    moments = await ground.fetch(_MOMENTS)
    assert {row["set"] for row in moments} == MOMENTS
    assert [row for row in moments if row["at"] < row["due_at"]] == []
    late = timedelta(seconds=LATE_SECONDS_MAX)
    assert [row for row in moments if row["set"] != "schedule.fired" and row["at"] > row["due_at"] + late] == []
    (slots,) = await ground.fetch(_SLOTS)
    assert slots["skipped"] == 0
    assert slots["fired"] == slots["slots"] == slots["runs"]
    assert slots["fired"] > 0
    assert await ground.fetch(_BACKWARDS, late) == []
    assert await ground.fetch(_LEASES_LOST) == []


async def _sealed(ground: Ground) -> None:
    """Each seal is later than the one before it, and they agree with the record."""
    pool = await asyncpg.create_pool(ground.owner_dsn, min_size=1, max_size=1)
    try:
        seals = await seals_of(pool)
        sealed = await check_seals(pool, Keyring.of(ground.secrets))
    finally:
        await pool.close()
    assert sealed.findings == ()
    moments = [seal.sealed_at for seal in seals]
    assert len(moments) > 1
    assert moments == sorted(set(moments))


async def _over(ground: Ground, run_ids: Sequence[UUID]) -> None:
    """Wait until runs are completed, and what follows their ends: back-links, and questions that are withdrawn."""

    async def over() -> asyncpg.Record | None:
        (row,) = await ground.fetch(_OVER, run_ids)
        return row if (row["over"], row["left_over"]) == (len(run_ids), 0) else None

    row = await found(over)
    assert row["completed"] == len(run_ids)


async def _seen(ground: Ground, sql: str, stream_id: UUID) -> None:
    async def seen() -> bool | None:
        return True if await ground.fetch(sql, stream_id) else None

    await found(seen)


def _apart(said: Sequence[Mapping[str, Any]]) -> timedelta:
    """How far apart the replicas of a service, started together, believe to have been started; the least of all."""
    up: dict[str, list[datetime]] = {}
    for line in said:
        if line["event"] == "service started":
            up.setdefault(line["service"], []).append(datetime.fromisoformat(line["timestamp"]))
    assert up.keys() == set(ORDER)
    return min(max(moments) - min(moments) for moments in up.values())


def _is_write(call: Mapping[str, Any]) -> bool:
    return bool(call["meta"]["minutebook/kind"] == "write")
