"""The shell of every owner, on the memory store and on PostgreSQL: batches, races, bad items, wakes, outbox."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from contracts.base import Actor, BlobRef, Event
from contracts.errors import Broken, Conflict, MinutebookError, Rejected
from contracts.events.decision import DecisionOpened
from contracts.events.run import (
    RoleBinding,
    RunCancelled,
    RunCreated,
    RunResumed,
    RunStageEntered,
    RunStarted,
    RunSuspended,
    Trigger,
    UserRef,
)
from libs.bus.port import Message
from libs.domain import decision, run
from libs.domain.core import NOTHING, Birth, Category, Decided, Guard, facts
from libs.eventstore.memory import MemoryStore
from libs.eventstore.port import BatchResult, EventStore
from libs.owner import Done, Item, Owner, Publisher
from libs.owner.telling import TELLING_MAX
from tests.support.postgres import World
from tests.support.record import ListeningBus, eventually

GROUP, TENANT = uuid4(), uuid4()
ACTOR = Actor(kind="system", name="test")
USER = UserRef(id=uuid4(), email="dana@example.com")


@pytest.fixture
def store(world: World) -> EventStore:
    """Each kind of store in turn."""
    return world.store


@dataclass
class Counting:
    """Counts the statements, and loses the first races on purpose."""

    inner: Any
    appends: int = 0
    loads: int = 0
    intrude: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def load(self, category: str, after: Mapping[UUID, int], **options: Any) -> Any:
        self.loads += 1
        return await self.inner.load(category, after, **options)

    async def append(self, category: str, appends: Any) -> BatchResult:
        self.appends += 1
        if self.intrude:
            self.intrude -= 1
            first = appends[0]
            other = replace(first, events=first.events[:1], births=(), guards=())
            await self.inner.append(category, [other])
        result: BatchResult = await self.inner.append(category, appends)
        return result


def created(at: datetime, name: str = "trial") -> RunCreated:
    return RunCreated(
        at=at,
        definition_id=name,
        hash="0" * 64,
        bundle=BlobRef(digest="1" * 64, bytes=2),
        context={},
        initiated_by=USER,
        trigger=Trigger(kind="manual"),
    )


def opened(at: datetime, run_id: UUID) -> DecisionOpened:
    return DecisionOpened(
        at=at,
        run_id=run_id,
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


def decide(command: str, state: run.State, now: datetime) -> Decided:
    """A tiny decider over real facts of a run."""
    match command.split(":"):
        case ["start", *name]:
            return (
                facts(created(now, name[0] if name else "trial"), RunStarted(at=now))
                if state.status == "absent"
                else NOTHING
            )
        case ["enter", stage]:
            return facts(RunStageEntered(at=now, stage=stage))
        case ["suspend"]:
            return NOTHING if state.status == "suspended" else facts(RunSuspended(at=now, reason="pause"))
        case ["flip"]:
            event: Event = RunResumed(at=now) if state.status == "suspended" else RunSuspended(at=now, reason="flip")
            return facts(event)
        case ["refuse"]:
            raise Rejected("test.refused", "no", status=409)
        case ["bug"]:
            raise ZeroDivisionError
        case ["bear", child]:
            birth = Birth("decision", UUID(child), opened(now, UUID(int=7)))
            return Decided(events=(RunSuspended(at=now, reason="x"),), births=(birth,))
        case ["guarded", other]:
            guard = Guard("decision", UUID(other), frozenset({"open"}))
            return Decided(events=(RunCancelled(at=now, reason="x"),), guards=(guard,))
        case _:
            return NOTHING


def owner(
    store: Any, bus: ListeningBus | None = None, category: Category[run.State] = run.CATEGORY
) -> Owner[run.State, str]:
    publisher = Publisher(bus or ListeningBus(), store)
    return Owner(category, decide, store=store, publisher=publisher, categories={"decision": decision.CATEGORY})


def item(stream_id: UUID, command: str, **fields: Any) -> Item[str]:
    known = {"tenant_group": GROUP, "tenant": TENANT} | fields
    return Item(stream_id=stream_id, command=command, actor=ACTOR, causation=uuid4(), **known)


async def test_a_batch_is_one_load_and_one_append(store: EventStore) -> None:
    counting = Counting(store)
    results = await owner(counting).handle([item(uuid4(), "start") for _ in range(50)])
    assert all(isinstance(r, Done) and r.changed and r.version == 2 for r in results)
    assert (counting.loads, counting.appends) == (1, 1)


async def test_items_of_one_stream_are_carried_out_one_after_the_other(store: EventStore) -> None:
    stream = uuid4()
    results = await owner(store).handle([item(stream, "start"), item(stream, "flip"), item(stream, "flip")])
    assert [r.version for r in results if isinstance(r, Done)] == [2, 3, 4]


async def test_what_is_already_true_writes_nothing(store: EventStore) -> None:
    stream, counting = uuid4(), Counting(store)
    shell = owner(counting)
    await shell.handle([item(stream, "start")])
    (again,) = await shell.handle([item(stream, "start")])
    assert isinstance(again, Done)
    assert not again.changed
    assert counting.appends == 1


async def test_a_failure_is_its_items_own(store: EventStore) -> None:
    good = uuid4()
    results = await owner(store).handle([item(uuid4(), "refuse"), item(uuid4(), "bug"), item(good, "start")])
    assert isinstance(results[0], Rejected)
    assert isinstance(results[1], Broken)
    assert isinstance(results[2], Done)


async def test_a_statement_that_is_refused_falls_back_to_one_item_at_a_time(store: EventStore) -> None:
    poison = replace(
        run.CATEGORY,
        columns=lambda s: {**run.CATEGORY.columns(s), **({"project_id": "\x00"} if s.definition_id == "bad" else {})},
    )
    streams = [uuid4() for _ in range(20)]
    commands = ["start:bad" if n == 7 else "start:good" for n in range(20)]
    results = await owner(store, category=poison).handle([item(s, c) for s, c in zip(streams, commands, strict=True)])
    assert [n for n, r in enumerate(results) if isinstance(r, MinutebookError)] == [7]
    assert isinstance(results[7], Broken)


async def test_a_lost_race_is_loaded_and_decided_again(store: EventStore) -> None:
    stream = uuid4()
    await owner(store).handle([item(stream, "start")])
    counting = Counting(store, intrude=2)
    (result,) = await owner(counting).handle([item(stream, "flip")])
    assert isinstance(result, Done)
    assert result.version == 5
    assert counting.appends == 3


async def test_a_race_that_is_always_lost_is_a_conflict(store: EventStore) -> None:
    stream = uuid4()
    await owner(store).handle([item(stream, "start")])
    (result,) = await owner(Counting(store, intrude=100)).handle([item(stream, "flip")])
    assert isinstance(result, Conflict)


async def test_a_cached_state_is_topped_up_with_what_others_wrote(store: EventStore) -> None:
    stream, here, there = uuid4(), owner(store), owner(store)
    await here.handle([item(stream, "start")])
    await there.handle([item(stream, "suspend")])
    (result,) = await here.handle([item(stream, "flip")])
    assert isinstance(result, Done)
    assert result.state.status == "running"


async def test_another_groups_stream_does_not_exist(store: EventStore) -> None:
    stream = uuid4()
    await owner(store).handle([item(stream, "start")])
    (result,) = await owner(store).handle([item(stream, "suspend", tenant_group=uuid4())])
    assert isinstance(result, Rejected)
    assert result.status == 404


async def test_births_are_written_once_and_filed_under_their_own_run(store: EventStore) -> None:
    child, first, second = uuid4(), uuid4(), uuid4()
    shell = owner(store)
    await shell.handle([item(first, "start"), item(second, "start")])
    results = await shell.handle([item(first, f"bear:{child}"), item(second, f"bear:{child}")])
    skipped = [r.skipped for r in results if isinstance(r, Done)]
    assert sorted(skipped, key=len) == [(), (child,)]
    facts_ = (await store.events("decision", [child], tenant_group=GROUP))[child]
    assert len(facts_) == 1
    assert facts_[0].metadata.correlation == UUID(int=7)


async def test_a_guard_that_does_not_hold_refuses_its_item_alone(store: EventStore) -> None:
    child, mother, free, held = uuid4(), uuid4(), uuid4(), uuid4()
    shell = owner(store)
    await shell.handle([item(s, "start") for s in (mother, free, held)])
    await shell.handle([item(mother, f"bear:{child}")])
    good, bad = await shell.handle([item(free, f"guarded:{child}"), item(held, f"guarded:{uuid4()}")])
    assert isinstance(good, Done)
    assert isinstance(bad, Rejected)
    assert bad.code == "append.guarded"


async def test_a_due_stream_is_moved_on_whatever_comes_of_it(store: EventStore) -> None:
    """Otherwise it would stand at the head of the scheduler's scan for ever."""
    overdue = replace(run.CATEGORY, wake_at=lambda _s, now: now - timedelta(seconds=1))
    quiet, failing = uuid4(), uuid4()
    shell = owner(store, category=overdue)
    await shell.handle([item(quiet, "start"), item(failing, "start")])
    await shell.handle([item(quiet, "nothing"), item(failing, "bug")])
    load = await store.load("run", {quiet: 0, failing: 0})
    for stream in (quiet, failing):
        wake_at = load.streams[stream].wake_at
        assert wake_at is not None
        assert wake_at > load.now


async def test_a_wake_moves_only_when_it_must_be_earlier_or_has_passed(store: EventStore) -> None:
    stream, shell = uuid4(), owner(store)
    await shell.handle([item(stream, "start")])
    first = (await store.load("run", {stream: 0})).streams[stream].wake_at
    await shell.handle([item(stream, "flip")])
    parked = (await store.load("run", {stream: 0})).streams[stream].wake_at
    assert first == parked, "one stale wake after parking costs less than moving it"


async def test_what_is_heard_is_published_once_per_type_and_the_outbox_is_forgotten() -> None:
    """`run.started` stands behind each `run.created`, and nobody listens to it."""
    bus, store = ListeningBus(), MemoryStore()
    await owner(store, bus).handle([item(uuid4(), "start") for _ in range(3)])
    assert [m.subject for m in bus.published] == ["history.run.created"]
    store.advance(timedelta(minutes=1))
    assert not await store.unpublished(older_than=timedelta(seconds=5), limit=10)


async def test_what_nobody_hears_of_is_forgotten_unpublished() -> None:
    bus, store, stream = ListeningBus(), MemoryStore(), uuid4()
    shell = owner(store, bus)
    await shell.handle([item(stream, "start")])
    bus.published.clear()

    (result,) = await shell.handle([item(stream, "enter:one")])

    assert isinstance(result, Done)
    assert result.state.stage == "one"
    assert not bus.published
    store.advance(timedelta(minutes=1))
    assert not await store.unpublished(older_than=timedelta(seconds=5), limit=10)


async def test_a_bus_that_is_away_leaves_the_outbox_row_and_the_answer_stands() -> None:
    store = MemoryStore()
    (result,) = await owner(store, ListeningBus(away=True)).handle([item(uuid4(), "start")])
    assert isinstance(result, Done)
    store.advance(timedelta(minutes=1))
    ((_, written),) = await store.unpublished(older_than=timedelta(seconds=5), limit=10)
    assert [w.type for w in written] == ["run.created", "run.started"]


class SlowBus(ListeningBus):
    """Takes what is published at once, and acknowledges nothing until it is `open`."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()

    async def publish(self, messages: Sequence[Message]) -> None:
        await super().publish(messages)
        await self.open.wait()


async def test_an_answer_waits_for_no_acknowledgement_of_the_bus() -> None:
    """What was decided has left before the answer, and its outbox row stays until it is acknowledged."""
    bus, store = SlowBus(), MemoryStore()
    (result,) = await owner(store, bus).handle([item(uuid4(), "start")])
    assert isinstance(result, Done)
    assert [m.subject for m in bus.published] == ["history.run.created"]
    assert await store.unpublished(older_than=timedelta(0), limit=10)
    bus.open.set()

    async def forgotten() -> bool:
        return not await store.unpublished(older_than=timedelta(0), limit=10)

    await eventually(forgotten)


async def test_a_bus_that_is_slow_holds_up_whoever_writes_on() -> None:
    bus, store = SlowBus(), MemoryStore()
    shell = owner(store, bus)
    for _ in range(TELLING_MAX):
        await shell.handle([item(uuid4(), "start")])
    one_more = asyncio.create_task(shell.handle([item(uuid4(), "start")]))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not one_more.done()
    bus.open.set()
    (result,) = await one_more
    assert isinstance(result, Done)
    assert len(bus.published) == TELLING_MAX + 1


async def test_a_stream_keeps_the_trace_that_it_began_with(store: EventStore) -> None:
    stream, shell = uuid4(), owner(store)
    origin, foreign = f"00-{'a' * 32}-{'1' * 16}-01", f"00-{'b' * 32}-{'2' * 16}-01"
    await shell.handle([item(stream, "start", traceparent=origin)])
    await shell.handle([item(stream, "flip", traceparent=foreign)])
    history = (await store.events("run", [stream], tenant_group=GROUP))[stream]
    assert {r.metadata.traceparent for r in history} == {origin}
