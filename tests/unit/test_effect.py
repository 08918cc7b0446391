"""Given facts, when a command, then facts: effects."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from contracts.base import Event
from contracts.errors import Rejected
from contracts.events.effect import (
    EffectCancelled,
    EffectDeclared,
    EffectFailed,
    EffectInDoubt,
    EffectPending,
    EffectRearmed,
    EffectSucceeded,
)
from contracts.events.run import UserRef
from libs.canonical import blob
from libs.domain import lifecycle
from libs.domain.core import NOTHING, Guard
from libs.domain.effect import (
    CATEGORY,
    DECLARED_WATCHDOG,
    Begin,
    Cancel,
    Command,
    Doubt,
    Expire,
    Fail,
    Finish,
    Rearm,
    Rest,
    State,
    decide,
)

NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
OVER_WITHIN = timedelta(seconds=45)
LATER = NOW + OVER_WITHIN
RUN, CLAIM, OTHER = uuid4(), uuid4(), uuid4()
RESPONSE, RESPONSE_BYTES = blob({"html_url": "https://example.com/pull/7"})
BLOBS = {RESPONSE.digest: RESPONSE_BYTES}

DECLARED = EffectDeclared(
    at=NOW,
    run_id=RUN,
    step="open_pr",
    key="pull_request:CORE-7",
    system="github",
    tool="create_pull_request",
    arguments=blob({"title": "A title"})[0],
    owner=UserRef(id=uuid4(), email="sam@example.com"),
)
PENDING = EffectPending(at=NOW, claim=CLAIM, arm=0, over_at=NOW + OVER_WITHIN)
FAILED = EffectFailed(at=NOW, claim=CLAIM, failure_class="connector_unavailable", message="refused")
DOUBT = EffectInDoubt(at=NOW, claim=CLAIM, reason="no answer")
SUCCEEDED = EffectSucceeded(at=NOW, claim=CLAIM, reference="https://example.com/pull/7", response=RESPONSE)

FINISH = Finish(claim=CLAIM, reference="https://example.com/pull/7", response=RESPONSE, blobs=BLOBS)
FAIL = Fail(claim=CLAIM, failure_class="connector_unavailable", message="refused")


def given(*events: Event) -> State:
    return CATEGORY.fold(events)


def test_pending_is_guarded_by_an_active_run() -> None:
    decided = decide(Begin(claim=CLAIM, over_within=OVER_WITHIN), given(DECLARED), NOW)
    assert decided.events == (PENDING,)
    assert decided.guards == (Guard("run", RUN, lifecycle.RUN_ACTIVE),)


@pytest.mark.parametrize(
    "state",
    [
        given(DECLARED, PENDING),
        given(DECLARED, PENDING, SUCCEEDED),
        given(DECLARED, PENDING, FAILED),
        given(DECLARED, PENDING, DOUBT),
        given(DECLARED, EffectCancelled(at=NOW, reason="cancelled")),
    ],
    ids=lambda state: state.status,
)
def test_only_a_declared_effect_begins(state: State) -> None:
    assert decide(Begin(claim=OTHER, over_within=OVER_WITHIN), state, NOW) == NOTHING


@pytest.mark.parametrize("before", [(DECLARED, PENDING), (DECLARED, PENDING, DOUBT)], ids=["pending", "in doubt"])
@pytest.mark.parametrize(("command", "fact"), [(FINISH, SUCCEEDED), (FAIL, FAILED)], ids=["finish", "fail"])
def test_the_current_call_reports(before: tuple[Event, ...], command: Command, fact: Event) -> None:
    assert decide(command, given(*before), NOW).events == (fact,)
    assert decide(command, given(*before, fact), NOW) == NOTHING


def test_the_response_goes_with_the_success() -> None:
    assert decide(FINISH, given(DECLARED, PENDING), NOW).blobs == BLOBS


@pytest.mark.parametrize(
    "command",
    [
        FINISH.model_copy(update={"claim": OTHER}),
        FAIL.model_copy(update={"claim": OTHER}),
        Doubt(claim=OTHER, reason="no answer"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_another_call_may_not_report(command: Command) -> None:
    for state in (given(DECLARED, PENDING), given(DECLARED, PENDING, FAILED, EffectRearmed(at=NOW, arm=1))):
        with pytest.raises(Rejected) as caught:
            decide(command, state, NOW)
        assert (caught.value.status, caught.value.code) == (409, "effect.claim_lost")


def test_the_arm_that_the_run_asks_for_counts_when_no_call_was_announced() -> None:
    (event,) = decide(Begin(claim=CLAIM, arm=2, over_within=OVER_WITHIN), given(DECLARED), NOW).events
    assert event == EffectPending(at=NOW, claim=CLAIM, arm=2, over_at=NOW + OVER_WITHIN)


def test_a_sent_call_without_an_answer_is_in_doubt_once() -> None:
    assert decide(Doubt(claim=CLAIM, reason="no answer"), given(DECLARED, PENDING), NOW).events == (DOUBT,)
    assert decide(Doubt(claim=CLAIM, reason="no answer"), given(DECLARED, PENDING, DOUBT), NOW) == NOTHING


def test_an_unreported_call_expires_only_when_it_cannot_be_under_way() -> None:
    state = given(DECLARED, PENDING)
    assert decide(Expire(), state, NOW + OVER_WITHIN - timedelta(microseconds=1)) == NOTHING
    (event,) = decide(Expire(), state, NOW + OVER_WITHIN).events
    assert isinstance(event, EffectInDoubt)
    assert event.claim == CLAIM


def test_expiry_concerns_pending_effects_alone() -> None:
    for events in ((DECLARED,), (DECLARED, PENDING, SUCCEEDED), (DECLARED, PENDING, FAILED)):
        assert decide(Expire(), given(*events), NOW + OVER_WITHIN) == NOTHING


def test_a_failed_effect_is_armed_once_per_arm() -> None:
    failed = given(DECLARED, PENDING, FAILED)
    rearmed = EffectRearmed(at=NOW, arm=1)
    assert decide(Rearm(arm=1), failed, NOW).events == (rearmed,)
    state = given(DECLARED, PENDING, FAILED, rearmed)
    assert (state.status, state.claim, state.failure_class) == ("declared", None, None)
    again = given(
        DECLARED,
        PENDING,
        FAILED,
        rearmed,
        EffectPending(at=NOW, claim=OTHER, arm=1, over_at=NOW + OVER_WITHIN),
        FAILED,
    )
    assert decide(Rearm(arm=1), again, NOW) == NOTHING


@pytest.mark.parametrize("last", [PENDING, SUCCEEDED, DOUBT], ids=lambda event: type(event).__name__)
def test_nothing_but_a_failure_is_armed_again(last: Event) -> None:
    assert decide(Rearm(arm=5), given(DECLARED, PENDING, last), NOW) == NOTHING


def test_a_cancel_reaches_only_what_was_not_announced() -> None:
    cancel = Cancel(reason="the run was cancelled")
    assert decide(cancel, given(DECLARED), NOW).events == (EffectCancelled(at=NOW, reason=cancel.reason),)
    for last in (PENDING, SUCCEEDED, FAILED, DOUBT):
        assert decide(cancel, given(DECLARED, PENDING, last), NOW) == NOTHING


def test_what_does_not_exist_is_not_found() -> None:
    with pytest.raises(Rejected) as caught:
        decide(Begin(claim=CLAIM, over_within=OVER_WITHIN), State(), NOW)
    assert caught.value.status == 404


def test_wakes_watch_what_a_lost_message_or_process_would_leave() -> None:
    assert CATEGORY.wake_at(given(DECLARED), NOW) == NOW + DECLARED_WATCHDOG
    assert CATEGORY.wake_at(given(DECLARED, PENDING), NOW + timedelta(seconds=30)) == LATER
    assert CATEGORY.wake_at(given(DECLARED, PENDING, DOUBT), NOW) == LATER
    assert CATEGORY.wake_at(given(DECLARED, PENDING, FAILED), NOW) is None


@pytest.mark.parametrize(
    ("before", "command"),
    [
        ((DECLARED,), Begin(claim=CLAIM, over_within=OVER_WITHIN)),
        ((DECLARED,), Cancel(reason="over")),
        ((DECLARED, PENDING), FINISH),
        ((DECLARED, PENDING), FAIL),
        ((DECLARED, PENDING), Doubt(claim=CLAIM, reason="no answer")),
        ((DECLARED, PENDING, DOUBT), FINISH),
        ((DECLARED, PENDING, DOUBT), FAIL),
        ((DECLARED, PENDING, FAILED), Rearm(arm=1)),
    ],
)
def test_every_edge_is_in_the_table(before: tuple[Event, ...], command: Command) -> None:
    state = given(*before)
    after = CATEGORY.fold(decide(command, state, LATER).events, state)
    assert after.status in lifecycle.EFFECT[state.status]
    assert decide(Rest(), after, NOW) == NOTHING
