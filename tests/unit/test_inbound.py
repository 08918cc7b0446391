"""Given facts, when a command, then facts: events of sources."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from contracts import ids
from contracts.base import Actor, Event, JsonObject
from contracts.errors import Rejected
from contracts.events.inbound import (
    InboundBodyDiffered,
    InboundReceived,
    InboundReplayed,
    InboundRouted,
    ResumedRun,
    SkippedTrigger,
    StartedRun,
)
from contracts.events.run import RunCreated, Trigger, UserRef
from libs.canonical import blob
from libs.domain import lifecycle
from libs.domain.core import NOTHING
from libs.domain.inbound import (
    BODIES_MAX,
    CATEGORY,
    WATCHDOG,
    Delivered,
    Look,
    NoteBody,
    Outcome,
    Receive,
    Replay,
    Route,
    Routing,
    Start,
    State,
    decide,
    trigger_key,
)

NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
GROUP = uuid4()
KEYS: JsonObject = {"jira_key": "CORE-7"}
EVENT_ID = ids.inbound("jira", "17")
ADA = Actor(kind="user", id=uuid4(), name="ada@example.com")
START = Start(
    run_id=ids.triggered_run(GROUP, "core-dev", trigger_key("jira", "17")),
    definition_id="core-dev",
    hash="0" * 64,
    bundle=blob({})[0],
    initiated_by=UserRef(id=uuid4(), email="workflows@example.com"),
    project_id="core",
)
STARTED = StartedRun(definition_id="core-dev", run_id=START.run_id)
SKIPPED = SkippedTrigger(definition_id="pmo", reason="no active user")
RESUMED = ResumedRun(run_id=uuid4(), step="answer", wait_id=uuid4())
RECEIVE = Receive(
    source="jira",
    external_id="17",
    event="issue_transitioned",
    keys=KEYS,
    payload=blob({"issue": 7})[0],
    body_sha256="1" * 64,
)


def routing(
    *, starts: tuple[Start, ...] = (), skipped: tuple[SkippedTrigger, ...] = (), resumed: tuple[ResumedRun, ...] = ()
) -> Routing:
    return Routing(inbound_id=EVENT_ID, starts=starts, skipped=skipped, resumed=resumed, why="nobody asked for it")


def given(*more: Event) -> State:
    return CATEGORY.fold((*decide(RECEIVE, State(), NOW).events, *more))


def routed(found: Routing | None = None) -> State:
    return given(*decide(Route(routing=found or routing()), given(), NOW).events)


def replayed(state: State, found: Routing) -> State:
    return CATEGORY.fold(decide(Replay(routing=found, command_id=uuid4(), by=ADA), state, NOW).events, state)


def test_a_delivery_is_recorded_before_anything_follows_from_it() -> None:
    decided = decide(RECEIVE, State(), NOW)
    (received,) = decided.events
    assert isinstance(received, InboundReceived)
    assert decided.births == ()
    state = given()
    assert (state.status, state.keys, state.payload) == ("received", KEYS, RECEIVE.payload)
    assert CATEGORY.wake_at(state, NOW) == NOW + WATCHDOG


def test_a_delivery_is_recorded_once() -> None:
    assert decide(RECEIVE, given(), NOW) == NOTHING


def test_it_is_routed_with_the_runs_that_it_starts() -> None:
    decided = decide(Route(routing=routing(starts=(START,), skipped=(SKIPPED,), resumed=(RESUMED,))), given(), NOW)
    assert decided.events == (InboundRouted(at=NOW, started=(STARTED,), skipped=(SKIPPED,), resumed=(RESUMED,)),)
    (birth,) = decided.births
    assert (birth.category, birth.stream_id) == ("run", START.run_id)
    assert isinstance(birth.event, RunCreated)
    assert birth.event.context == KEYS
    assert birth.event.trigger == Trigger(kind="event", key="jira:17", source="jira", inbound_id=EVENT_ID)


def test_it_is_routed_once_and_then_waits_for_nothing() -> None:
    state = routed(routing(starts=(START,)))
    assert decide(Route(routing=routing(starts=(START,))), state, NOW) == NOTHING
    assert decide(Look(), state, NOW) == NOTHING
    assert CATEGORY.wake_at(state, NOW) is None


@pytest.mark.parametrize(
    ("found", "unmatched"),
    [
        (routing(), "nobody asked for it"),
        (routing(skipped=(SKIPPED,)), "nobody asked for it"),
        (routing(starts=(START,)), None),
        (routing(resumed=(RESUMED,)), None),
    ],
)
def test_why_nothing_follows_is_kept(found: Routing, unmatched: str | None) -> None:
    assert routed(found).unmatched == unmatched


def test_a_replay_starts_nothing_twice() -> None:
    before, command_id = routed(routing(starts=(START,))), uuid4()
    decided = decide(Replay(routing=routing(starts=(START,)), command_id=command_id, by=ADA), before, NOW)
    (event,) = decided.events
    assert isinstance(event, InboundReplayed)
    assert (event.started, decided.births, event.by) == ((), (), ADA)
    assert [str(START.run_id) in skipped.reason for skipped in event.skipped] == [True]
    after = CATEGORY.fold(decided.events, before)
    assert after.answered[command_id] == Outcome(skipped=event.skipped, unmatched="nobody asked for it")
    assert decide(Replay(routing=routing(), command_id=command_id, by=ADA), after, NOW) == NOTHING


def test_what_a_replay_starts_it_starts_once() -> None:
    state = replayed(routed(routing(skipped=(SKIPPED,))), routing(starts=(START,)))
    assert state.runs == {START.run_id}
    assert replayed(state, routing(starts=(START,))).runs == {START.run_id}


def test_an_event_is_unmatched_until_something_follows_from_it() -> None:
    state = replayed(routed(), routing())
    assert state.unmatched == "nobody asked for it"
    assert replayed(replayed(state, routing(resumed=(RESUMED,))), routing()).unmatched is None
    command_id = uuid4()
    delivered = decide(Delivered(command_id=command_id, by=ADA, resumed=RESUMED), state, NOW)
    after = CATEGORY.fold(delivered.events, state)
    assert (after.unmatched, after.answered[command_id]) == (None, Outcome(resumed=(RESUMED,)))
    assert decide(Delivered(command_id=command_id, by=ADA, resumed=RESUMED), after, NOW) == NOTHING


def test_another_body_is_noted_once_and_changes_nothing() -> None:
    other = "2" * 64
    decided = decide(NoteBody(body_sha256=other), routed(), NOW)
    assert decided.events == (InboundBodyDiffered(at=NOW, body_sha256=other),)
    state = CATEGORY.fold(decided.events, routed())
    assert (state.status, state.body_sha256, state.started) == ("routed", RECEIVE.body_sha256, ())
    for known in (other, RECEIVE.body_sha256):
        assert decide(NoteBody(body_sha256=known), state, NOW) == NOTHING
    for number in range(BODIES_MAX):
        state = CATEGORY.fold(decide(NoteBody(body_sha256=f"{number:064}"), state, NOW).events, state)
    assert len(state.other_bodies) == BODIES_MAX


def test_what_is_asked_of_an_event_that_is_not_there() -> None:
    for command in (NoteBody(body_sha256="2" * 64), Replay(routing=routing(), command_id=uuid4(), by=ADA)):
        with pytest.raises(Rejected) as caught:
            decide(command, State(), NOW)
        assert (caught.value.status, caught.value.code) == (404, "event.not_found")


def test_what_is_being_routed_is_not_replayed() -> None:
    with pytest.raises(Rejected) as caught:
        decide(Replay(routing=routing(), command_id=uuid4(), by=ADA), given(), NOW + timedelta(seconds=1))
    assert (caught.value.status, caught.value.code) == (409, "event.not_routed")


def test_every_edge_is_in_the_table() -> None:
    assert given().status in lifecycle.INBOUND["absent"]
    assert routed().status in lifecycle.INBOUND["received"]
