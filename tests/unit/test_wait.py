"""Given facts, when a command, then facts: waits on events."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from contracts.base import Actor, Event, JsonObject
from contracts.errors import Rejected
from contracts.events.wait import WaitClosed, WaitLookedBack, WaitMatched, WaitOpened
from libs.canonical import blob
from libs.domain import lifecycle
from libs.domain.core import NOTHING, Guard
from libs.domain.wait import CATEGORY, WATCHDOG, Arrival, Close, Deliver, Look, LookBack, Match, State, decide
from libs.language.matching import probe, probes

NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
RUN, TAKEN_BEFORE = uuid4(), uuid4()
ADA = Actor(kind="user", id=uuid4(), name="ada@example.com")
MATCH: JsonObject = {"event": "comment_created", "jira_key": "CORE-7"}
OPENED = WaitOpened(
    at=NOW, run_id=RUN, step="answer", round=1, source="jira", match=MATCH, since=NOW, consumed=(TAKEN_BEFORE,)
)
OVER = frozenset({"completed", "failed", "cancelled", "superseded"})


def arrival(**changes: Any) -> Arrival:
    fields = {
        "inbound_id": uuid4(),
        "source": "jira",
        "external_id": "17",
        "event": "comment_created",
        "keys": {"jira_key": "CORE-7", "comment": "Go on"},
        "payload": blob({"issue": 7})[0],
    }
    return Arrival(**{**fields, **changes})


def given(*events: Event) -> State:
    return CATEGORY.fold((OPENED, *events))


LOOKED_BACK = WaitLookedBack(at=NOW)
CLOSED = WaitClosed(at=NOW, reason="over")


def matched(found: Arrival, *, by: Actor | None = None) -> WaitMatched:
    return WaitMatched(
        at=NOW,
        inbound_id=found.inbound_id,
        external_id=found.external_id,
        event=found.event,
        keys=found.keys,
        payload=found.payload,
        by=by,
    )


@pytest.mark.parametrize("state", [given(), given(LOOKED_BACK)], ids=["opening", "open"])
def test_an_event_that_fits_is_taken_while_the_run_is_open(state: State) -> None:
    found = arrival()
    decided = decide(Match(arrival=found), state, NOW)
    assert decided.events == (matched(found),)
    assert decided.guards == (Guard("run", RUN, lifecycle.RUN_OPEN),)
    after = CATEGORY.fold(decided.events, state)
    assert (after.status, after.inbound_id, after.external_id, after.keys) == (
        "matched",
        found.inbound_id,
        "17",
        found.keys,
    )


@pytest.mark.parametrize(
    "other",
    [
        arrival(event="comment_deleted"),
        arrival(keys={"jira_key": "CORE-8"}),
        arrival(source="tracker"),
        arrival(inbound_id=TAKEN_BEFORE),
    ],
    ids=["event", "key", "source", "consumed"],
)
def test_what_the_wait_does_not_ask_for_is_left(other: Arrival) -> None:
    assert decide(Match(arrival=other), given(LOOKED_BACK), NOW) == NOTHING
    assert decide(LookBack(found=other), given(), NOW).events == (LOOKED_BACK,)


def test_a_wait_takes_one_event() -> None:
    state = given(matched(arrival()))
    assert decide(Match(arrival=arrival()), state, NOW) == NOTHING
    assert decide(LookBack(found=arrival()), state, NOW) == NOTHING


def test_looking_back_finds_an_event_or_opens_the_wait() -> None:
    found = arrival()
    assert decide(LookBack(found=found), given(), NOW).events == (matched(found),)
    assert decide(LookBack(found=None), given(), NOW).events == (LOOKED_BACK,)
    assert decide(LookBack(found=found), given(LOOKED_BACK), NOW) == NOTHING


def test_only_an_opening_wait_is_looked_at_by_the_clock() -> None:
    assert CATEGORY.wake_at(given(), NOW) == NOW + WATCHDOG
    for state in (given(LOOKED_BACK), given(CLOSED), given(matched(arrival()))):
        assert CATEGORY.wake_at(state, NOW) is None
    assert decide(Look(), given(), NOW) == NOTHING


def test_a_person_may_hand_it_what_it_does_not_ask_for() -> None:
    found = arrival(event="build.released", source="builds", keys={})
    assert decide(Deliver(arrival=found, by=ADA), given(LOOKED_BACK), NOW).events == (matched(found, by=ADA),)


@pytest.mark.parametrize(
    ("state", "status", "code"),
    [
        (State(), 404, "wait.not_found"),
        (given(CLOSED), 409, "wait.closed"),
        (given(matched(arrival())), 409, "wait.matched"),
    ],
)
def test_what_waits_no_more_is_handed_nothing(state: State, status: int, code: str) -> None:
    with pytest.raises(Rejected) as caught:
        decide(Deliver(arrival=arrival(), by=ADA), state, NOW)
    assert (caught.value.status, caught.value.code) == (status, code)


def test_a_run_takes_an_event_once_whoever_hands_it() -> None:
    with pytest.raises(Rejected) as caught:
        decide(Deliver(arrival=arrival(inbound_id=TAKEN_BEFORE), by=ADA), given(), NOW)
    assert (caught.value.status, caught.value.code) == (409, "wait.consumed")


def test_closing_happens_once_and_for_a_run_that_ended_only_while_it_is_over() -> None:
    decided = decide(Close(reason="over", run_over=True), given(LOOKED_BACK), NOW)
    assert (decided.events, decided.guards) == ((CLOSED,), (Guard("run", RUN, OVER),))
    assert decide(Close(reason="over", run_over=False), given(), NOW).guards == ()
    for state in (State(), given(CLOSED), given(matched(arrival()))):
        assert decide(Close(reason="again", run_over=True), state, NOW) == NOTHING


def test_every_edge_is_in_the_table() -> None:
    for event, before in (
        (LOOKED_BACK, given()),
        (CLOSED, given()),
        (matched(arrival()), given()),
        (CLOSED, given(LOOKED_BACK)),
        (matched(arrival()), given(LOOKED_BACK)),
    ):
        assert CATEGORY.evolve(before, event).status in lifecycle.WAIT[before.status]


@pytest.mark.parametrize(
    "match",
    [
        {},
        {"event": "comment_created"},
        {"event": ["comment_created", "comment_updated"]},
        {"jira_key": "CORE-7"},
        {"event": "comment_created", "jira_key": ["CORE-7"], "number": 7},
        MATCH,
    ],
)
def test_a_wait_stands_under_one_of_the_probes_of_every_event_that_it_takes(match: JsonObject) -> None:
    assert probe(match) in probes("comment_created", {"jira_key": "CORE-7", "number": 7, "labels": ["a"]})


def test_waits_for_other_tickets_stand_under_other_probes() -> None:
    found = probes("comment_created", {"jira_key": "CORE-7", "project": "CORE"})
    assert probe({**MATCH, "jira_key": "CORE-8", "project": "CORE"}) not in found
    assert probe({"event": "comment_created", "jira_key": None}) in found


def test_the_head_row_tells_by_what_a_wait_is_found_and_what_it_took() -> None:
    found = arrival()
    columns = CATEGORY.columns(given(matched(found)))
    assert columns["inbound_id"] == found.inbound_id
    assert columns["probe"] == probe(MATCH)
    assert columns["event"] == "comment_created"
    assert columns["run_id"] == RUN
    assert isinstance(columns["run_id"], UUID)
