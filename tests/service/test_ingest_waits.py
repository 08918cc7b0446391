"""Ingest and the waits of runs against a real record: whenever an event comes, its wait is given it exactly once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from random import Random
from uuid import UUID, uuid4

import pytest

from contracts import ids
from contracts.events.inbound import InboundReceived, ResumedRun
from contracts.events.run import RunCancelled, RunStepFailed, RunSuspended
from contracts.events.wait import WaitMatched
from libs.domain import inbound, run, wait
from services.ingest.waits import PAGE
from tests.support.postgres import Database
from tests.support.waits import PAYLOAD, SOURCE, WINDOW, Waiting, waiting


@pytest.fixture
async def world(database: Database) -> AsyncIterator[Waiting]:
    async with waiting(database) as made:
        yield made


async def test_an_event_that_comes_after_the_wait_is_given_to_it(world: Waiting) -> None:
    wait_id = await world.waiting()
    await world.opened(wait_id)
    assert (await world.at(wait_id)).status == "open"
    event_id = await world.event()
    await world.arrives(event_id)
    state = await world.at(wait_id)
    assert (state.status, state.inbound_id, state.keys) == ("matched", event_id, {"jira_key": "CORE-7"})
    resumed = ResumedRun(run_id=await world.run_of(wait_id), step="answer", wait_id=wait_id)
    routed = await world.routed(event_id)
    assert (routed.status, routed.resumed, routed.unmatched) == ("routed", (resumed,), None)
    told = {message.subject for bus in world.buses for message in bus.published}
    assert told == {"history.wait.matched"}


async def test_an_event_that_comes_while_the_wait_opens_is_given_to_it(world: Waiting) -> None:
    wait_id, event_id = await world.waiting(), await world.event()
    await world.arrives(event_id)
    assert (await world.at(wait_id)).inbound_id == event_id
    await world.opened(wait_id)
    assert await world.record.types("wait", wait_id) == ["wait.opened", "wait.matched"]


async def test_an_event_that_came_before_is_found_within_the_window(world: Waiting) -> None:
    old, event_id, later = await world.event("1"), await world.event("2"), await world.event("3")
    await world.arrives(old)
    await world.record.shift(timedelta(minutes=1))
    await world.arrives(event_id)
    await world.record.shift(WINDOW - timedelta(seconds=1))
    await world.arrives(later)
    wait_id = await world.waiting()
    await world.opened(wait_id)
    assert (await world.at(wait_id)).inbound_id == event_id
    assert "no run waits for it" in str((await world.routed(event_id)).unmatched)


async def test_looking_back_goes_through_more_events_than_one_page(world: Waiting) -> None:
    now = await world.record.store.now()
    others = {
        uuid4(): (
            InboundReceived(
                at=now + timedelta(milliseconds=number),
                source=SOURCE,
                external_id=str(number),
                event="comment_created",
                keys={"jira_key": "CORE-7" if number == PAGE + 5 else "CORE-1"},
                payload=PAYLOAD,
                body_sha256="1" * 64,
            ),
        )
        for number in range(PAGE + 10)
    }
    await world.record.plant_all(inbound.CATEGORY, others)
    found, nothing = await world.waiting(), await world.waiting(jira_key="CORE-9")
    await world.opened(found, nothing)
    assert (await world.at(found)).external_id == str(PAGE + 5)
    assert (await world.at(nothing)).status == "open"


async def test_what_is_not_asked_for_leaves_the_wait(world: Waiting) -> None:
    wait_id = await world.waiting()
    await world.opened(wait_id)
    for number, (event, key) in enumerate([("comment_deleted", "CORE-7"), ("comment_created", "CORE-8")]):
        event_id = await world.event(str(number), event=event, jira_key=key)
        await world.arrives(event_id)
        assert (await world.routed(event_id)).resumed == ()
    assert (await world.at(wait_id)).status == "open"


async def test_one_event_resumes_every_run_that_waits_for_it(world: Waiting) -> None:
    made = await world.waits([{"jira_key": f"CORE-{7 if number < 5 else 8}"} for number in range(6)])
    await world.opened(*(wait_id for wait_id, _ in made))
    event_id = await world.event()
    await world.arrives(event_id)
    resumed = (await world.routed(event_id)).resumed
    assert {each.run_id for each in resumed} == {run_id for _, run_id in made[:5]}
    assert (await world.at(made[5][0])).status == "open"


async def test_of_two_events_in_one_batch_a_wait_takes_one(world: Waiting) -> None:
    wait_id = await world.waiting()
    await world.opened(wait_id)
    first, second = await world.event("1"), await world.event("2")
    await world.arrives(first, second)
    taken = (await world.at(wait_id)).inbound_id
    assert [bool((await world.routed(event_id)).resumed) for event_id in (first, second)] == [
        taken == first,
        taken == second,
    ]


async def test_a_suspended_run_takes_an_event_and_one_that_is_over_takes_none(world: Waiting) -> None:
    suspended, cancelled = await world.waiting(), await world.waiting()
    await world.opened(suspended, cancelled)
    now = await world.record.store.now()
    await world.record.plant(run.CATEGORY, await world.run_of(suspended), RunSuspended(at=now, reason="frozen"))
    await world.record.plant(run.CATEGORY, await world.run_of(cancelled), RunCancelled(at=now, reason="no"))
    event_id = await world.event()
    await world.arrives(event_id)
    assert [each.wait_id for each in (await world.routed(event_id)).resumed] == [suspended]
    assert (await world.at(cancelled)).status == "open"
    await world.bus.tell("ingest-history", "run.cancelled", await world.run_of(cancelled))
    assert (await world.at(cancelled)).status == "closed"


async def test_a_wait_whose_step_failed_is_closed_and_no_other(world: Waiting) -> None:
    late = await world.waiting(step="late")
    run_id = await world.run_of(late)
    other = await world.waiting(step="other", run_id=run_id)
    await world.opened(late, other)
    failed = RunStepFailed(at=await world.record.store.now(), step="late", failure_class="timeout", message="late")
    await world.record.plant(run.CATEGORY, run_id, failed)
    await world.bus.tell("ingest-history", "run.step_failed", run_id)
    assert [(await world.at(wait_id)).status for wait_id in (late, other)] == ["closed", "open"]


async def test_what_was_told_to_nobody_is_found_by_the_clock(world: Waiting) -> None:
    opening = await world.waiting()
    over = await world.waiting(jira_key="CORE-8")
    await world.opened(over)
    event_id = await world.event()
    cancelled = RunCancelled(at=await world.record.store.now(), reason="no")
    await world.record.plant(run.CATEGORY, await world.run_of(over), cancelled)
    await world.record.shift(max(wait.WATCHDOG, inbound.WATCHDOG))
    assert opening in {due.stream_id for due in await world.record.store.due("wait", limit=10)}
    await world.bus.wake("ingest", "inbound", event_id)
    await world.bus.wake("ingest", "wait", opening, over)
    assert (await world.at(opening)).inbound_id == event_id
    assert (await world.at(over)).status == "closed"
    assert await world.record.store.due("wait", limit=10) == []


async def test_an_event_that_was_recorded_by_who_died_then_is_routed(world: Waiting) -> None:
    """Both places where a process may die between its statements: after recording, and after a wait took the event."""
    taken, waiting = await world.waiting(), await world.waiting()
    await world.opened(taken, waiting)
    now = await world.record.store.now()
    event_id = ids.inbound(SOURCE, "17")
    received = InboundReceived(
        at=now,
        source=SOURCE,
        external_id="17",
        event="comment_created",
        keys={"jira_key": "CORE-7"},
        payload=PAYLOAD,
        body_sha256="1" * 64,
    )
    matched = WaitMatched(
        at=now, inbound_id=event_id, external_id="17", event="comment_created", keys=received.keys, payload=PAYLOAD
    )
    await world.record.plant(inbound.CATEGORY, event_id, received)
    await world.record.plant(wait.CATEGORY, taken, matched)
    await world.record.shift(inbound.WATCHDOG)
    assert [due.stream_id for due in await world.record.store.due("inbound", limit=10)] == [event_id]
    await world.bus.wake("ingest", "inbound", event_id)
    routed = await world.routed(event_id)
    assert {each.wait_id for each in routed.resumed} == {taken, waiting}
    assert await world.record.store.due("inbound", limit=10) == []
    await world.arrives(event_id)
    assert await world.record.types("inbound", event_id) == ["inbound.received", "inbound.routed"]


TRIES = pytest.mark.parametrize(
    "tries", [60, pytest.param(2_000, marks=pytest.mark.force)], ids=["some", "two thousand"]
)


@TRIES
@pytest.mark.parametrize("order", ["before", "while", "at once"])
async def test_an_event_that_races_its_wait_is_given_to_it_once(world: Waiting, order: str, tries: int) -> None:
    """Before: recorded as the wait is born. While: as the wait looks back. At once: both are born together."""
    random = Random(tries)
    made: list[tuple[UUID, UUID]] = []
    numbers = list(range(tries))
    while numbers:
        chunk = [numbers.pop() for _ in range(min(random.randint(1, max(12, tries // 40)), len(numbers)))]
        made += await _race(world, order, chunk, random)
    assert len(made) == tries
    store = world.record.store
    waits = (await store.load("wait", {wait_id: 0 for wait_id, _ in made})).streams
    events = (await store.load("inbound", {event_id: 0 for _, event_id in made})).streams
    for wait_id, event_id in made:
        facts = [recorded.event for recorded in waits[wait_id].events]
        assert [fact.inbound_id for fact in facts if isinstance(fact, WaitMatched)] == [event_id]
        assert [recorded.type for recorded in events[event_id].events] == ["inbound.received", "inbound.routed"]


async def _race(world: Waiting, order: str, numbers: Sequence[int], random: Random) -> list[tuple[UUID, UUID]]:
    """Let events and the waits for them come, in this order or none; answer (wait, event) of each."""
    event_ids = await asyncio.gather(*(world.event(f"{order}.{number}", jira_key=f"T-{number}") for number in numbers))
    made: list[tuple[UUID, UUID]] = []

    async def born() -> None:
        made.extend(await world.waits([{"jira_key": f"T-{number}"} for number in numbers]))

    async def looks_back() -> None:
        await asyncio.sleep(random.random() * 0.002)
        await world.opened(*(wait_id for wait_id, _ in made))

    async def come() -> None:
        await asyncio.sleep(random.random() * 0.004)
        shuffled = random.sample(event_ids, len(event_ids))
        await asyncio.gather(*(world.arrives(*shuffled[start::2]) for start in (0, 1) if shuffled[start::2]))

    async def born_and_looking_back() -> None:
        await born()
        await looks_back()

    match order:
        case "before":
            await asyncio.gather(come(), born())
            await looks_back()
        case "while":
            await born()
            await asyncio.gather(come(), looks_back())
        case _:
            await asyncio.gather(come(), born_and_looking_back())
    return [(wait_id, event_id) for (wait_id, _), event_id in zip(made, event_ids, strict=True)]
