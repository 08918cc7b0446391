"""Two planners at one run: whatever both see and want, one transition follows each time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

import pytest

from contracts.base import Principal
from contracts.commands import CancelRun, ResumeRun, StartRuns, SuspendRun, SyncDefinitions
from contracts.errors import Rejected
from contracts.replies import DefinitionsSynced, RunChanged, RunsStarted
from libs.domain import run
from libs.process.asks import ask
from services.planner.app import build
from tests.support.postgres import Database
from tests.support.record import ListeningBus, Record, open_record

RUNS: Final = 25
STEPS: Final = 40
"""Each run is raced for at each of its steps: a thousand times together."""

GATE: Final = "        - {{ key: s{}, kind: gate, gate: exists(state.branch), wait: {{ for: 1m }} }}\n"
WORKFLOW: Final = """
workflow:
  id: trial
  name: Trial
  triggers: [{ kind: manual, roles: [developer] }]
  stages:
    - key: only
      steps:
"""
WAIT: Final = timedelta(seconds=30)


@pytest.fixture
async def record(database: Database) -> AsyncIterator[Record]:
    async with open_record(database) as record:
        yield record


@pytest.fixture
async def buses(record: Record) -> AsyncIterator[list[ListeningBus]]:
    """Two replicas of the planner, each with connections and a cache of its own."""
    async with AsyncExitStack() as stack:
        buses = [ListeningBus(), ListeningBus()]
        for bus in buses:
            tools = await record.tools(bus)
            assert tools.pool is not None
            stack.push_async_callback(tools.pool.close)
            build(tools)
        yield buses


def of(who: Principal, **fields: object) -> dict[str, object]:
    deadline = datetime(2100, 1, 1, tzinfo=UTC)
    return {"command_id": uuid4(), "deadline": deadline, "principal": who, **fields}


def person(record: Record, *roles: str) -> Principal:
    return Principal(
        kind="user",
        id=uuid4(),
        name=f"{roles[0]}@example.com",
        tenant_group=record.group,
        tenant=record.tenant,
        roles=frozenset(roles),
    )


async def begin(record: Record, bus: ListeningBus, who: Principal, *, runs: int, steps: int) -> list[UUID]:
    """Start runs of a definition whose every step waits a minute first."""
    text = WORKFLOW + "".join(GATE.format(n) for n in range(steps))
    admin = person(record, "platform_admin")
    sync = SyncDefinitions.model_validate(of(admin, files={"workflows/trial/workflow.yaml": text}))
    await ask(bus, sync, DefinitionsSynced, timeout=WAIT)
    ids = [uuid4() for _ in range(runs)]
    wanted = [{"run_id": run_id, "context": {}} for run_id in ids]
    start = StartRuns.model_validate(of(who, definition_id="trial", runs=wanted))
    answer = await ask(bus, start, RunsStarted, timeout=WAIT)
    assert all(reply.problem is None for reply in answer.runs)
    return ids


async def test_a_thousand_races_make_one_transition_each(record: Record, buses: list[ListeningBus]) -> None:
    ids = await begin(record, buses[0], person(record, "developer"), runs=RUNS, steps=STEPS)
    for _ in range(STEPS):
        await record.shift(timedelta(seconds=61))
        await asyncio.gather(*(bus.wake("planner", "run", *ids) for bus in buses))
    expected = {"run.step_delayed": STEPS, "run.step_succeeded": STEPS, "run.parked": STEPS, "run.unparked": STEPS}
    for run_id in ids:
        counted = Counter(await record.types("run", run_id))
        assert {type_: counted[type_] for type_ in expected} == expected
        assert counted["run.completed"] == 1


async def test_of_two_who_operate_at_once_the_loser_is_told_who_won(record: Record, buses: list[ListeningBus]) -> None:
    who, admin = person(record, "developer"), person(record, "platform_admin")
    ids = await begin(record, buses[0], who, runs=20, steps=1)
    for run_id in ids:
        cancel = CancelRun.model_validate(of(who, run_id=run_id))
        suspend = SuspendRun.model_validate(of(admin, run_id=run_id))
        first, second = await asyncio.gather(
            ask(buses[0], cancel, RunChanged, timeout=WAIT),
            ask(buses[1], suspend, RunChanged, timeout=WAIT),
            return_exceptions=True,
        )
        assert isinstance(first, RunChanged), "a suspended run may be cancelled"
        if isinstance(second, Rejected):
            assert (second.status, second.extra["by"], second.extra["state"]) == (409, who.name, "cancelled")
        assert (await record.state(run.CATEGORY, run_id)).status == "cancelled"
    resume = ResumeRun.model_validate(of(admin, run_id=ids[0]))
    with pytest.raises(Rejected) as error:
        await ask(buses[0], resume, RunChanged, timeout=WAIT)
    assert (error.value.status, error.value.extra["by"]) == (409, who.name)
    assert error.value.extra["at"] is not None
