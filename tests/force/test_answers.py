"""Answers against answers, cancels, reminders, escalations and timeouts: many races, one outcome each in the record."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest

from contracts import ids
from contracts.envelope import Owner as ServiceName
from libs.bus.declare import declare
from minutebook.client import ApiError
from minutebook.models import StartRunItem
from tests.force.definitions import DUE_SECONDS, FILES
from tests.support.fleet import COLLEAGUE, EMAIL, PATIENCE_SECONDS, Fleet, found, open_fleet
from tests.support.postgres import Database

BATCH: Final = 100
"""All services share this process: a start of 500 might take longer than a caller waits beside what it starts."""

PAIRS: Final = (pytest.param(100, marks=pytest.mark.force_short), 1_000)
AT_ONCE: Final = 20
CANCELS: Final = 300
HURRIED: Final = 120
"""Runs of each race with the clock."""

EARLY_SECONDS: Final = 0.3
LATE_SECONDS: Final = 1.5
"""How near to the moment an answer comes. Many are due at once, and an escalation counts from its late reminder."""

_ENDED: Final = """
select d.stream_id, d.run_id, d.state, r.state as run_state, r.reason,
       array_agg(h.type::text order by h.version) as types,
       max(h.payload->>'outcome') filter (where h.type = 'decision.answered') as outcome,
       max(h.payload->'by'->>'id') filter (where h.type = 'decision.answered') as who,
       max((h.payload->>'at')::timestamptz) filter (where h.type = 'decision.answered') as at
  from decision_heads d join run_heads r on r.stream_id = d.run_id join workflow_history h on h.stream_id = d.stream_id
 group by d.stream_id, d.run_id, d.state, r.state, r.reason"""
_SETTLED: Final = """
select (select count(*) from run_heads where state in ('completed', 'failed', 'cancelled', 'suspended')) as runs,
       (select count(*) from decision_heads where state = 'open') as open"""
_ANNOUNCED_LATE: Final = """
select e.run_id from effect_heads e join workflow_history p on p.stream_id = e.stream_id and p.type = 'effect.pending'
  join workflow_history c on c.stream_id = e.run_id and c.type = 'run.cancelled'
 where (p.era, p.xid, p.position) > (c.era, c.xid, c.position)"""


@dataclass(frozen=True)
class Told:
    """What a caller was told: 200, or the problem."""

    status: int
    code: str = ""
    extra: dict[str, Any] | None = None


async def told(command: Callable[[], Awaitable[object]]) -> Told:
    """Send a command, and again as long as nobody has the time for it."""
    while True:
        try:
            await command()
        except ApiError as error:
            if error.problem.status != 503:
                return Told(error.problem.status, error.problem.code, error.problem.extra)
        else:
            return Told(200)


@pytest.fixture
async def fleet(database: Database, nats_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    await declare(nats_url)
    twice: Sequence[ServiceName] = ("decision", "api", "planner", "effects")
    opened = open_fleet(database.app_dsn, database.owner_dsn, nats_url, tmp_path, twice=twice, files=FILES)
    async with opened as fleet:
        yield fleet


async def begin(fleet: Fleet, definition: str, count: int) -> list[UUID]:
    """Start runs, and return them once all wait for their decision."""
    items = [StartRunItem(context={"jira_key": f"{definition}-{n}"}, project_id="core") for n in range(count)]
    started: list[UUID] = []
    for at in range(0, count, BATCH):
        answer = await fleet.client.start_runs(definition, items[at : at + BATCH])
        started += [item.run.run_id for item in answer.items if item.run is not None]
    assert len(started) == count

    async def all_open() -> bool | None:
        rows = await fetch(fleet, "select count(*) as n from decision_heads")
        return True if rows[0]["n"] >= count else None

    await found(all_open)
    return started


async def fetch(fleet: Fleet, sql: str) -> Sequence[asyncpg.Record]:
    connection = await asyncpg.connect(fleet.owner_dsn)
    try:
        return list(await connection.fetch(sql))
    finally:
        await connection.close()


async def at_once(work: Iterable[Awaitable[Any]], *, limit: int = AT_ONCE) -> list[Any]:
    """Results in order, of a few at a time."""
    places = asyncio.Semaphore(limit)

    async def placed(each: Awaitable[Any]) -> Any:
        async with places:
            return await each

    return await asyncio.gather(*(placed(each) for each in work))


async def settled(fleet: Fleet, runs: int) -> dict[UUID, asyncpg.Record]:
    """Wait until every run has ended or is suspended, and no decision is open; returns what became of them, by run."""

    async def ended() -> bool | None:
        (row,) = await fetch(fleet, _SETTLED)
        return True if (row["runs"], row["open"]) == (runs, 0) else None

    await found(ended, within=3 * PATIENCE_SECONDS)
    return {row["run_id"]: row for row in await fetch(fleet, _ENDED)}


def once(rows: Iterable[asyncpg.Record]) -> None:
    """Each decision was ended once: answered or withdrawn."""
    for row in rows:
        ends = [type_ for type_ in row["types"] if type_ in ("decision.answered", "decision.withdrawn")]
        assert ends == [f"decision.{row['state']}"], row


async def written_as_answered(fleet: Fleet, rows: dict[UUID, asyncpg.Record]) -> Counter[str]:
    """Who was refused has no write, who completed has one, and nothing was announced after a cancel."""
    writes = Counter(UUID(call["meta"]["minutebook/run"]) for call in fleet.target.calls())
    for run_id, row in rows.items():
        approved = row["outcome"] == "approve"
        assert writes[run_id] <= (1 if approved else 0), row
        assert (writes[run_id] == 1) or row["run_state"] != "completed" or not approved, row
    assert await fetch(fleet, _ANNOUNCED_LATE) == []
    verification = await fleet.verified()
    assert verification.ok, verification.differences
    return Counter(f"{row['state']}, run {row['run_state']}" for row in rows.values())


@pytest.mark.parametrize("pairs", PAIRS)
async def test_of_two_answers_at_once_one_is_taken_and_the_other_is_told_whose(fleet: Fleet, pairs: int) -> None:
    runs = await begin(fleet, "judged", pairs)

    async def both(run_id: UUID) -> Sequence[Told]:
        decision_id = ids.decision(run_id, "review", 1)
        return await asyncio.gather(
            told(lambda: fleet.client.decide(decision_id, "approve", idempotency_key=str(run_id))),
            told(lambda: fleet.colleague.decide(decision_id, "reject", idempotency_key=str(run_id))),
        )

    answers = dict(zip(runs, await at_once(both(run_id) for run_id in runs), strict=True))
    rows = await settled(fleet, pairs)
    once(rows.values())
    winners: Counter[str] = Counter()
    for run_id, pair in answers.items():
        row = rows[run_id]
        assert sorted(answer.status for answer in pair) == [200, 409], pair
        taken = 0 if pair[0].status == 200 else 1
        outcome, email = (("approve", EMAIL), ("reject", COLLEAGUE))[taken]
        # Names lie sealed in the record; ids do not.
        assert (row["outcome"], row["who"]) == (outcome, str(ids.user(ids.tenant_group("example"), email)))
        refused = pair[1 - taken]
        assert refused.code == "decision.answered"
        assert refused.extra is not None
        assert (refused.extra["who"], refused.extra["outcome"]) == (email, outcome)
        assert refused.extra["when"].replace("Z", "+00:00") == row["at"].isoformat()
        winners[row["outcome"]] += 1
    assert winners.total() == pairs
    assert min(winners["approve"], winners["reject"]) > 0, "they did race"
    await written_as_answered(fleet, rows)


@pytest.mark.force_short
async def test_answers_against_cancels(fleet: Fleet) -> None:
    runs, drawn = await begin(fleet, "judged", CANCELS), random.Random(1)

    async def both(run_id: UUID) -> Sequence[Told]:
        async def cancel() -> None:
            await asyncio.sleep(drawn.uniform(0, 0.06))
            await fleet.colleague.operate(run_id, "cancel", "enough")

        decision_id = ids.decision(run_id, "review", 1)
        return await asyncio.gather(
            told(lambda: fleet.client.decide(decision_id, "approve", idempotency_key=str(run_id))), told(cancel)
        )

    answers = dict(zip(runs, await at_once(both(run_id) for run_id in runs), strict=True))
    rows = await settled(fleet, CANCELS)
    once(rows.values())
    for run_id, (answer, cancel) in answers.items():
        row = rows[run_id]
        assert (row["state"] == "answered") == (answer.status == 200), (answer, row)
        assert (row["run_state"] == "cancelled") == (cancel.status == 200), (cancel, row)
        assert answer.status in (200, 409)
        assert cancel.status in (200, 409)
    became = await written_as_answered(fleet, rows)
    assert {"answered, run cancelled", "withdrawn, run cancelled"} <= became.keys(), became


MOMENTS: Final = {
    "decision.reminded": ("hurried", 1),
    "decision.escalated": ("hurried", 2),
    "decision.withdrawn": ("timed", 1),
}
"""What the clock brings: of which definition, and after how many times `DUE_SECONDS`."""


@pytest.mark.parametrize("moment", MOMENTS)
async def test_answers_against_the_clock(fleet: Fleet, moment: str) -> None:
    """Each answer comes a little before or after the moment; who answers late is refused, and a reminder takes none."""
    definition, times = MOMENTS[moment]
    runs, drawn = await begin(fleet, definition, HURRIED), random.Random(times)
    opened = {row["run_id"]: row["opened_at"] for row in await fetch(fleet, "select * from decision_heads")}
    (row,) = await fetch(fleet, "select minutebook_now() as now")
    loop = asyncio.get_running_loop()
    begun = {run_id: loop.time() - (row["now"] - opened[run_id]).total_seconds() for run_id in runs}

    async def answer(run_id: UUID) -> Told:
        at = begun[run_id] + times * DUE_SECONDS + drawn.uniform(-EARLY_SECONDS, times * LATE_SECONDS)
        await asyncio.sleep(max(0.0, at - loop.time()))
        decision_id = ids.decision(run_id, "review", 1)
        return await told(lambda: fleet.client.decide(decision_id, "approve", idempotency_key=str(run_id)))

    answers = dict(zip(runs, await asyncio.gather(*(answer(run_id) for run_id in runs)), strict=True))
    rows = await settled(fleet, HURRIED)
    once(rows.values())
    types: Counter[str] = Counter()
    for run_id, each in answers.items():
        row = rows[run_id]
        assert (row["state"] == "answered") == (each.status == 200), (each, row)
        assert each.status in (200, 409), each
        assert row["run_state"] == ("completed" if row["state"] == "answered" else "suspended"), row
        assert max(Counter(row["types"]).values()) == 1, row
        types.update(row["types"])
    await written_as_answered(fleet, rows)
    assert 0 < types[moment] < HURRIED, "they did race"
