"""The duty that watches the bus: another incarnation wakes everything open, at a pace, and whoever leads."""

from collections.abc import AsyncIterator, Mapping, Sequence
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from contracts.base import BlobRef
from contracts.errors import MinutebookError
from contracts.events.decision import DecisionAnswered, DecisionOpened
from contracts.events.effect import EffectDeclared, EffectPending, EffectSucceeded
from contracts.events.run import (
    RoleBinding,
    RunCancelled,
    RunCreated,
    RunParked,
    RunStarted,
    RunSuspended,
    Trigger,
    UserRef,
)
from contracts.subjects import DURABLES, STREAMS
from libs.bus.memory import MemoryBroker, MemoryBus
from libs.domain import decision, effect, lifecycle, run
from libs.owner import Publisher
from libs.process import wake_handler
from services.scheduler.admissions import Admissions
from services.scheduler.incarnations import OPEN, TOLD_OF, WOKEN_PER_LOOK_MAX, Incarnations
from services.scheduler.wakes import OWNERS
from tests.support.effects import OVER_WITHIN
from tests.support.postgres import Database
from tests.support.record import Record, eventually, open_record

REF = BlobRef(digest="1" * 64, bytes=2)
USER = UserRef(id=uuid4(), email="sam@example.com")


@pytest.fixture
async def record(database: Database) -> AsyncIterator[Record]:
    async with open_record(database) as record:
        yield record


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


async def leader(record: Record, broker: MemoryBroker) -> Incarnations:
    bus = await started(broker)
    admissions = Admissions(record.store, Publisher(bus, record.store))
    return Incarnations(record.store, bus, {"admission": admissions.on_wake, "run": admissions.look})


async def started(broker: MemoryBroker) -> MemoryBus:
    bus = MemoryBus(broker)
    await bus.start()
    return bus


async def due(record: Record) -> set[UUID]:
    return {found.stream_id for category in OPEN for found in await record.store.due(category, limit=5_000)}


async def plant_everywhere(record: Record) -> tuple[set[UUID], set[UUID]]:
    """Streams that are open and streams that are over, none of them due."""
    now = await record.store.now()
    created = RunCreated(
        at=now,
        definition_id="trial",
        hash="0" * 64,
        bundle=REF,
        context={},
        initiated_by=USER,
        trigger=Trigger(kind="manual"),
    )
    begun = (created, RunStarted(at=now))
    runs = {
        uuid4(): begun,
        uuid4(): (*begun, RunParked(at=now, on="decision")),
        uuid4(): (*begun, RunSuspended(at=now, reason="wait")),
    }
    over = {uuid4(): (*begun, RunCancelled(at=now, reason="enough"))}
    await record.plant_all(run.CATEGORY, {**runs, **over})

    opened = DecisionOpened(
        at=now,
        run_id=uuid4(),
        definition_id="trial",
        step="ok",
        title="ok",
        round=1,
        role="lead",
        binding=RoleBinding(),
        outcomes=("approve",),
        artifact_step=None,
        artifact=None,
        initiated_by=USER,
        project_id=None,
    )
    by = (await record.store.load("run", dict.fromkeys(runs, 0))).streams[next(iter(runs))].events[0].metadata.actor
    answered = DecisionAnswered(
        at=now, command_id=uuid4(), outcome="approve", by=by, comment=None, artifact=None, revised=None
    )
    decisions = {uuid4(): (opened,)}
    settled = {uuid4(): (opened, answered)}
    await record.plant_all(decision.CATEGORY, {**decisions, **settled})

    effects = {
        uuid4(): (declared(now),),
        uuid4(): (declared(now), EffectPending(at=now, claim=uuid4(), arm=0, over_at=now + OVER_WITHIN)),
    }
    claim = uuid4()
    done = EffectSucceeded(at=now, claim=claim, reference=None, response=REF)
    written = {uuid4(): (declared(now), EffectPending(at=now, claim=claim, arm=0, over_at=now + OVER_WITHIN), done)}
    await record.plant_all(effect.CATEGORY, {**effects, **written})
    return {*runs, *decisions, *effects}, {*over, *settled, *written}


def declared(now: object) -> EffectDeclared:
    return EffectDeclared.model_validate(
        {
            "at": now,
            "run_id": uuid4(),
            "step": "open_pr",
            "key": "pull_request",
            "system": "github",
            "tool": "create_pull_request",
            "arguments": REF,
            "owner": USER,
        }
    )


def test_what_is_woken_has_an_owner_that_takes_wakes() -> None:
    assert OPEN.keys() <= OWNERS.keys()
    for category, states in OPEN.items():
        edges = lifecycle.LIFECYCLES[category]
        assert not states & lifecycle.terminal(edges)
        assert states <= edges.keys()


async def test_a_bus_that_was_never_seen_wakes_what_is_open_and_is_recorded(
    record: Record, broker: MemoryBroker
) -> None:
    open_, over = await plant_everywhere(record)
    watch = await leader(record, broker)
    assert await due(record) == set()
    with capture_logs() as logs:
        await watch.look()
    assert await due(record) == open_
    assert not await due(record) & over
    assert (await record.store.incarnations()).keys() == {stream.name for stream in STREAMS}
    assert [log["event"] for log in logs] == [
        "the bus is not the one recorded, waking everything open",
        "everything open was woken",
    ]
    assert logs[-1]["woken"] == len(open_)


async def test_the_same_bus_wakes_nobody_again(record: Record, broker: MemoryBroker) -> None:
    watch = await leader(record, broker)
    await watch.look()
    await plant_everywhere(record)
    with capture_logs() as logs:
        await watch.look()
        await (await leader(record, broker)).look()
    assert await due(record) == set()
    assert logs == []


async def test_a_stream_that_was_lost_is_made_again_and_everything_open_is_woken(
    record: Record, broker: MemoryBroker
) -> None:
    watch = await leader(record, broker)
    await watch.look()
    open_, _ = await plant_everywhere(record)
    broker.delete_stream("HISTORY")
    with capture_logs() as logs:
        await watch.look()
        await watch.look()
    assert await due(record) == open_
    assert [log["event"] for log in logs] == [
        "streams or durables of the bus were missing",
        "the bus is not the one recorded, waking everything open",
        "everything open was woken",
    ]
    assert await (await started(broker)).redeclare() == ()


async def test_the_effects_service_is_told_of_what_people_may_not_know_of(record: Record, broker: MemoryBroker) -> None:
    open_, over = await plant_everywhere(record)
    told: dict[str, set[UUID]] = {}

    async def on_wake(category: str, stream_ids: Sequence[UUID]) -> Mapping[UUID, MinutebookError]:
        told.setdefault(category, set()).update(stream_ids)
        return {}

    bus = MemoryBus(broker)
    bus.subscribe(next(d for d in DURABLES if d.name == "effects-wake"), wake_handler(on_wake))
    await bus.start()
    with capture_logs():
        await (await leader(record, broker)).look()

    async def all_told() -> bool:
        return told.keys() == TOLD_OF.keys()

    await eventually(all_told)
    for category, states in TOLD_OF.items():
        heads = await record.store.heads(category, open_ | over)
        assert told[category] == {i for i, head in heads.items() if head.state in states}
    await bus.stop()


async def test_a_walk_keeps_its_pace_and_survives_its_leader(record: Record, broker: MemoryBroker) -> None:
    now = await record.store.now()
    await record.plant_all(effect.CATEGORY, {uuid4(): (declared(now),) for _ in range(WOKEN_PER_LOOK_MAX + 700)})
    first = await leader(record, broker)
    with capture_logs():
        await first.look()
        assert len(await due(record)) == WOKEN_PER_LOOK_MAX
        assert await record.store.incarnations() == {}, "a leader that dies here leaves the rest to the next"
        second = await leader(record, broker)
        await second.look()
    assert len(await due(record)) == WOKEN_PER_LOOK_MAX + 700
    assert len(await record.store.incarnations()) == len(STREAMS)
