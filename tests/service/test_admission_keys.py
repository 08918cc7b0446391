"""Admission against a real record: never more than the limit work, whoever settles, dies or hears of it late."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final, Literal
from uuid import UUID, uuid4

import pytest

from contracts import ids
from contracts.base import BlobRef, Event
from contracts.envelope import Address
from contracts.events.run import (
    RunAdmissionRequested,
    RunAdmissionReturned,
    RunCancelled,
    RunCompleted,
    RunCreated,
    RunFailed,
    RunResumed,
    RunStarted,
    Trigger,
    UserRef,
)
from libs.bus.memory import MemoryBroker, MemoryBus
from libs.bus.port import ACK
from libs.domain import admission, run
from libs.domain.categories import CATEGORIES
from libs.eventstore.port import HeadView
from libs.eventstore.postgres import PostgresStore
from libs.eventstore.verify import verify
from libs.faultpoints import VARIABLE
from libs.owner import Publisher
from services.scheduler.admissions import Admissions
from services.scheduler.app import build
from services.scheduler.incarnations import Incarnations
from tests.support.postgres import Database
from tests.support.record import ListeningBus, Record, open_record

HISTORY: Final = "scheduler-history"
REQUESTED: Final = "run.admission_requested"
RETURNED: Final = "run.admission_returned"
REF = BlobRef(digest="1" * 64, bytes=2)
USER = UserRef(id=uuid4(), email="sam@example.com")


@dataclass
class World:
    """A record, two schedulers, and the runs of one concurrency key, planned by hand."""

    record: Record
    buses: list[ListeningBus]
    key: str = "CORE-7"
    versions: dict[UUID, int] = field(default_factory=dict)

    @property
    def admission_id(self) -> UUID:
        return ids.admission(self.record.group, "trial", self.key)

    async def facts(self, run_id: UUID, *events: Event) -> None:
        await self.record.plant(run.CATEGORY, run_id, *events)
        self.versions[run_id] = self.versions.get(run_id, 0) + len(events)

    async def ask(self, run_id: UUID, *, working: bool = False, **changes: Any) -> None:
        """A run is created and asks, or goes on and asks again, without anybody being told."""
        now = await self.record.store.now()
        requested = RunAdmissionRequested(
            at=now,
            admission_id=self.admission_id,
            key=self.key,
            working=working,
            **{"limit": 1, "mode": "queue", "max_queued": 1_000, **changes},
        )
        created = RunCreated(
            at=now,
            definition_id="trial",
            hash="0" * 64,
            bundle=REF,
            context={},
            initiated_by=USER,
            trigger=Trigger(kind="manual"),
        )
        await self.facts(run_id, RunResumed(at=now) if working else created, requested)

    async def end(self, run_id: UUID, how: Literal["completed", "failed", "cancelled"] = "completed") -> None:
        """A run ends and gives its place back, without anybody being told."""
        now = await self.record.store.now()
        ends: dict[str, Event] = {
            "completed": RunCompleted(at=now, outcome="succeeded"),
            "failed": RunFailed(at=now, failure_class="default", reason="it broke"),
            "cancelled": RunCancelled(at=now, reason="enough"),
        }
        await self.facts(run_id, ends[how], RunAdmissionReturned(at=now, admission_id=self.admission_id))

    async def tell(self, type_: str, *run_ids: UUID, bus: int = 0) -> None:
        for run_id in run_ids:
            answer = await self.buses[bus].tell(HISTORY, type_, run_id, version=self.versions[run_id])
            assert list(answer) == [ACK]

    async def state(self) -> admission.State:
        return await self.record.state(admission.CATEGORY, self.admission_id)

    async def types(self) -> list[str]:
        return [name.removeprefix("admission.") for name in await self.record.types("admission", self.admission_id)]


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    async with AsyncExitStack() as exit_, open_record(database) as record:
        buses = [ListeningBus(), ListeningBus()]
        async with exit_:
            for bus in buses:
                # Nothing leads: what happens, happens by the messages that a test delivers.
                service = build(await record.tools(bus, scheduler_tick_seconds=60.0))
                await service.start()
                exit_.push_async_callback(service.stop)
            yield World(record, buses)


async def test_a_run_gets_its_place_and_the_next_one_when_it_is_over(world: World) -> None:
    first, second = uuid4(), uuid4()
    for run_id in (first, second):
        await world.ask(run_id)
        await world.tell(REQUESTED, run_id)
        await world.tell(REQUESTED, run_id, bus=1)
    state = await world.state()
    assert (state.holders, state.queued, state.key, state.definition_id) == ((first,), (second,), "CORE-7", "trial")
    (granted,) = [message for message in world.buses[0].published if message.subject == "history.admission.granted"]
    assert str(world.admission_id).encode() in granted.data

    await world.facts(first, RunStarted(at=await world.record.store.now()))
    await world.end(first)
    await world.tell(RETURNED, first)
    await world.tell(RETURNED, first, bus=1)
    assert (await world.state()).holders == (second,)
    assert await world.types() == ["granted", "queued", "returned", "granted"]


async def test_keys_and_tenant_groups_do_not_wait_for_each_other(world: World) -> None:
    other = World(world.record, world.buses, key="CORE-8")
    for each in (world, other):
        run_id = uuid4()
        await each.ask(run_id)
        await each.tell(REQUESTED, run_id)
        assert (await each.state()).holders == (run_id,)


async def test_a_run_that_was_over_before_it_was_heard_gets_no_place(world: World) -> None:
    run_id = uuid4()
    await world.ask(run_id)
    asked = world.versions[run_id]
    await world.end(run_id, "cancelled")
    await world.tell(RETURNED, run_id)
    answer = await world.buses[0].tell(HISTORY, REQUESTED, run_id, version=asked)
    assert list(answer) == [ACK]
    assert await world.types() == []


async def test_a_failed_run_that_goes_on_keeps_working_whichever_message_comes_first(world: World) -> None:
    run_id, waiting = uuid4(), uuid4()
    await world.ask(run_id)
    await world.ask(waiting)
    await world.tell(REQUESTED, run_id, waiting)
    await world.facts(run_id, RunStarted(at=await world.record.store.now()))
    await world.end(run_id, "failed")
    returned = world.versions[run_id]
    await world.ask(run_id, working=True)
    await world.tell(REQUESTED, run_id)
    answer = await world.buses[1].tell(HISTORY, RETURNED, run_id, version=returned)
    assert list(answer) == [ACK]
    state = await world.state()
    assert (state.holders, state.queued) == ((run_id,), (waiting,))

    await world.end(run_id, "failed")
    await world.tell(RETURNED, run_id)
    await world.ask(run_id, working=True)
    await world.tell(REQUESTED, run_id)
    assert set((await world.state()).holders) == {run_id, waiting}, "it works, whatever the limit says"


async def test_of_rapid_starts_that_coalesce_the_newest_waits(world: World) -> None:
    runs = [uuid4() for _ in range(6)]
    for run_id in runs:
        await world.ask(run_id, mode="coalesce")
    await world.tell(REQUESTED, *runs[:3], runs[5], runs[4], runs[3])
    state = await world.state()
    assert (state.holders, state.queued) == ((runs[0],), (runs[5],)), (
        "what is told late does not supersede what is newer"
    )
    assert (await world.types()).count("superseded") == 4


async def test_a_full_queue_refuses(world: World) -> None:
    runs = [uuid4() for _ in range(4)]
    for run_id in runs:
        await world.ask(run_id, max_queued=2)
    await world.tell(REQUESTED, *runs)
    assert await world.types() == ["granted", "queued", "queued", "refused"]
    heads = await world.record.pool.fetchrow("select key, holders, queued, state from admission_heads")
    assert heads is not None
    assert tuple(heads) == ("CORE-7", 1, 2, "busy")


async def test_what_was_lost_with_the_bus_is_found_by_looking(world: World) -> None:
    held, waiting, unheard = uuid4(), uuid4(), uuid4()
    await world.ask(held)
    await world.ask(waiting)
    await world.tell(REQUESTED, held, waiting)
    await world.end(held)
    await world.buses[0].wake("scheduler", "admission", world.admission_id)
    assert (await world.state()).holders == (waiting,)

    await world.ask(unheard)
    admissions = Admissions(world.record.store, Publisher(world.buses[0], world.record.store))
    assert await admissions.look([held, waiting, unheard]) == {}
    assert (await world.state()).queued == (unheard,)


async def test_a_lost_bus_gives_the_place_of_a_run_that_ended_to_the_next_one(world: World) -> None:
    """Found by the simulation: settling what those ask who wait took the wake of their key with it."""
    held, waiting = uuid4(), uuid4()
    await world.ask(held)
    await world.ask(waiting)
    await world.tell(REQUESTED, held, waiting)
    await world.end(held)

    bus = MemoryBus(MemoryBroker())
    await bus.start()
    admissions = Admissions(world.record.store, Publisher(bus, world.record.store))
    looks = {"admission": admissions.on_wake, "run": admissions.look}
    await Incarnations(world.record.store, bus, looks).look()
    assert (await world.state()).holders == (waiting,)


async def test_a_wake_passes_when_there_is_nothing_to_say(world: World) -> None:
    run_id = uuid4()
    await world.ask(run_id)
    await world.tell(REQUESTED, run_id)
    for ending in (False, True):
        if ending:
            await world.end(run_id)
            await world.tell(RETURNED, run_id)
        version = len(await world.types())
        now = await world.record.store.now()
        await world.record.store.move_wakes("admission", [(world.admission_id, version, now)])
        await world.buses[0].wake("scheduler", "admission", world.admission_id)
        assert await world.record.store.due("admission", limit=10) == []
    assert await world.types() == ["granted", "returned"]


@pytest.mark.parametrize("limit", [1, 3])
async def test_two_hundred_rapid_starts_never_work_more_than_may_and_all_end(world: World, limit: int) -> None:
    """Two schedulers settle, told of everything twice and in any order, while runs end as soon as they may begin."""
    random = Random(limit)
    runs = [uuid4() for _ in range(200)]
    left, most = set(runs), 0

    async def start() -> None:
        for run_id in runs:
            await world.ask(run_id, limit=limit)
            told = [world.tell(REQUESTED, run_id, bus=bus) for bus in random.sample([0, 1], k=random.choice([1, 2]))]
            await asyncio.gather(*told)

    async def work() -> None:
        nonlocal most
        while left:
            holders = [run_id for run_id in (await world.state()).holders if run_id in left]
            most = max(most, len(holders))
            assert len(holders) <= limit
            for run_id in holders:
                left.discard(run_id)
                await world.end(run_id)
            await asyncio.gather(*(world.tell(RETURNED, run_id, bus=random.choice([0, 1])) for run_id in holders))
            await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await asyncio.gather(start(), work())
    state = await world.state()
    assert (state.status, state.holders, state.queued) == ("idle", (), ())
    assert most == limit
    facts = (await world.record.store.load("admission", {world.admission_id: 0})).streams[world.admission_id].events
    working = admission.CATEGORY.initial
    for fact in facts:
        working = admission.CATEGORY.evolve(working, fact.event)
        assert len(working.holders) <= limit
    assert [fact.type for fact in facts].count("admission.granted") == len(runs)
    assert (await verify(world.record.pool, CATEGORIES)).ok


_SERVICE: Final = """
import asyncio, sys
from uuid import UUID

from tests.support.postgres import Database
from tests.support.record import ListeningBus, open_record
from services.scheduler.app import build


async def main(app_dsn, owner_dsn, type_, version, *run_ids):
    bus = ListeningBus()
    async with open_record(Database("", owner_dsn, app_dsn)) as record:
        service = build(await record.tools(bus, scheduler_tick_seconds=60.0))
        await service.start()
        await bus.tell("scheduler-history", type_, *map(UUID, run_ids), version=int(version))
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
"""


async def killed_at(place: str, world: World, type_: str, *run_ids: UUID) -> None:
    """A scheduler in a process of its own hears of these runs and dies at a fault point."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _SERVICE,
        world.record.database.app_dsn,
        world.record.database.owner_dsn,
        type_,
        str(world.versions[run_ids[0]]),
        *map(str, run_ids),
        cwd=Path(__file__).parents[2],
        env={**os.environ, VARIABLE: place},
        stdout=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(30):
            assert await process.wait() == -signal.SIGKILL
    finally:
        if process.returncode is None:
            process.kill()


@pytest.mark.parametrize("place", ["append.before", "append.committed"])
async def test_a_kill_between_statements_loses_and_doubles_no_place(world: World, place: str) -> None:
    runs = [uuid4() for _ in range(3)]
    for run_id in runs:
        await world.ask(run_id)
    await killed_at(place, world, REQUESTED, *runs)
    await world.tell(REQUESTED, *runs)
    assert len((await world.state()).holders) == 1
    for _ in runs:
        (holder,) = (await world.state()).holders
        await world.end(holder)
        await killed_at(place, world, RETURNED, holder)
        await world.tell(RETURNED, holder)
    assert (await world.state()).status == "idle"
    assert (await world.types()).count("granted") == len(runs)
    if place == "append.committed":
        await world.record.shift(timedelta(seconds=5))
        unpublished = await world.record.store.unpublished(older_than=timedelta(seconds=5), limit=10_000)
        lost = {fact.type for _, written in unpublished for fact in written if fact.category == "admission"}
        assert "admission.granted" in lost, "what the dead one wrote is the sweep's to publish"


class Overtaken(PostgresStore):
    """A store on which something happens to runs right after their heads were read, once."""

    meddle: Callable[[], Awaitable[None]] | None = None

    async def heads(self, category: str, stream_ids: Collection[UUID]) -> Mapping[UUID, HeadView]:
        found = await super().heads(category, stream_ids)
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            await meddle()
        return found


def overtaken(world: World, meddle: Callable[[], Awaitable[None]]) -> Admissions:
    store = Overtaken(world.record.pool)
    store.meddle = meddle
    return Admissions(store, Publisher(world.buses[0], store))


async def test_a_run_that_ends_while_it_is_let_in_gets_no_place(world: World) -> None:
    run_id = uuid4()
    await world.ask(run_id)

    async def cancel() -> None:
        await world.end(run_id, "cancelled")
        await world.tell(RETURNED, run_id, bus=1)

    assert await overtaken(world, cancel).look([run_id]) == {}
    assert await world.types() == [], "it would never be given back"


async def test_a_run_that_goes_on_while_it_is_let_go_keeps_its_place(world: World) -> None:
    run_id = uuid4()
    await world.ask(run_id)
    await world.tell(REQUESTED, run_id)
    await world.facts(run_id, RunStarted(at=await world.record.store.now()))
    await world.end(run_id, "failed")
    returned = Address(stream_id=run_id, version=world.versions[run_id], correlation=run_id)

    async def go_on() -> None:
        await world.ask(run_id, working=True)
        await world.tell(REQUESTED, run_id, bus=1)

    assert await overtaken(world, go_on).on_facts(RETURNED, [returned]) == {}
    assert (await world.state()).holders == (run_id,)
