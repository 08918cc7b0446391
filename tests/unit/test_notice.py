"""Given facts, when a command, then facts: notices."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from contracts.base import Event
from contracts.errors import Rejected
from contracts.events.notice import (
    NoticeFailed,
    NoticeInDoubt,
    NoticePutOff,
    NoticeRaised,
    NoticeRearmed,
    NoticeSending,
    NoticeSent,
)
from libs.domain import lifecycle
from libs.domain.core import NOTHING, facts
from libs.domain.notice import (
    CATEGORY,
    DUE_WATCHDOG,
    PAUSE_FIRST,
    PAUSE_MAX,
    TRIES_MAX,
    Begin,
    Command,
    Expire,
    Fail,
    Finish,
    Look,
    Lose,
    Raise,
    Rearm,
    State,
    decide,
)

NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
WITHIN = timedelta(seconds=30)
CLAIM, OTHER = uuid4(), uuid4()

RAISED = NoticeRaised(
    at=NOW,
    about="decision.opened",
    subject=uuid4(),
    run_id=uuid4(),
    channel_id="ops",
    recipient=None,
    title="To decide: Is it right?",
    text="Step review waits.",
)
SENDING = NoticeSending(at=NOW, claim=CLAIM, tries=1, over_at=NOW + WITHIN)
SENT = NoticeSent(at=NOW, claim=CLAIM)
PUT_OFF = NoticePutOff(at=NOW, claim=CLAIM, message="answered 503", again_at=NOW + PAUSE_FIRST)
FAILED = NoticeFailed(at=NOW, message="answered 410")
DOUBT = NoticeInDoubt(at=NOW, claim=CLAIM, reason="no answer")
REARMED = NoticeRearmed(at=NOW, command_id=uuid4())

COMMANDS: tuple[Command, ...] = (
    Raise(fact=RAISED),
    Begin(claim=OTHER, within=WITHIN),
    Finish(claim=CLAIM),
    Fail(claim=CLAIM, message="answered 503"),
    Fail(claim=CLAIM, message="answered 410", final=True),
    Lose(claim=CLAIM, reason="no answer", known_again=True),
    Lose(claim=CLAIM, reason="no answer", known_again=False),
    Expire(known_again=True),
    Expire(known_again=False),
    Rearm(command_id=uuid4()),
    Look(),
)
HISTORIES: dict[str, tuple[Event, ...]] = {
    "absent": (),
    "due": (RAISED,),
    "sending": (RAISED, SENDING),
    "sent": (RAISED, SENDING, SENT),
    "put off": (RAISED, SENDING, PUT_OFF),
    "failed": (RAISED, SENDING, FAILED),
    "in doubt": (RAISED, SENDING, DOUBT),
    "rearmed": (RAISED, SENDING, DOUBT, REARMED),
}


def given(*events: Event) -> State:
    return CATEGORY.fold(events)


def test_it_is_raised_once() -> None:
    assert decide(Raise(fact=RAISED), State(), NOW) == facts(RAISED)
    for events in HISTORIES.values():
        if events:
            assert decide(Raise(fact=RAISED), given(*events), NOW) == NOTHING


def test_a_try_is_announced_with_its_end() -> None:
    decided = decide(Begin(claim=CLAIM, within=WITHIN), given(RAISED), NOW)
    assert decided == facts(SENDING)
    assert given(RAISED, SENDING).over_at == NOW + WITHIN


def test_nothing_else_is_begun_than_what_is_due() -> None:
    for name in ("sending", "sent", "failed", "in doubt"):
        assert decide(Begin(claim=OTHER, within=WITHIN), given(*HISTORIES[name]), NOW) == NOTHING


def test_a_pause_is_kept_and_the_next_try_counts() -> None:
    state = given(RAISED, SENDING, PUT_OFF)
    early = NOW + PAUSE_FIRST - timedelta(microseconds=1)
    assert decide(Begin(claim=OTHER, within=WITHIN), state, early) == NOTHING
    at = NOW + PAUSE_FIRST
    expected = NoticeSending(at=at, claim=OTHER, tries=2, over_at=at + WITHIN)
    assert decide(Begin(claim=OTHER, within=WITHIN), state, at) == facts(expected)


def test_pauses_grow_and_tries_end() -> None:
    state, pauses = given(RAISED), []
    for tries in range(1, TRIES_MAX):
        sending = NoticeSending(at=NOW, claim=CLAIM, tries=tries, over_at=NOW + WITHIN)
        [put_off] = decide(Fail(claim=CLAIM, message="no"), given(RAISED, sending), NOW).events
        assert isinstance(put_off, NoticePutOff)
        pauses.append((put_off.again_at - NOW).total_seconds())
    assert pauses == [10, 40, 160, 640, 2_560, 10_240, PAUSE_MAX.total_seconds()]
    last = NoticeSending(at=NOW, claim=CLAIM, tries=TRIES_MAX, over_at=NOW + WITHIN)
    assert decide(Fail(claim=CLAIM, message="no"), given(RAISED, last), NOW) == facts(
        NoticeFailed(at=NOW, message="tried 8 times: no")
    )
    assert state.status == "due"


def test_what_is_refused_for_good_is_given_up_at_once() -> None:
    decided = decide(Fail(claim=CLAIM, message="answered 410", final=True), given(RAISED, SENDING), NOW)
    assert decided == facts(FAILED)


def test_a_lost_try_is_made_again_only_where_the_message_is_known_again() -> None:
    state = given(RAISED, SENDING)
    assert decide(Lose(claim=CLAIM, reason="no answer", known_again=False), state, NOW) == facts(DOUBT)
    [again] = decide(Lose(claim=CLAIM, reason="no answer", known_again=True), state, NOW).events
    assert isinstance(again, NoticePutOff)


@pytest.mark.parametrize("known_again", [True, False])
def test_nothing_is_said_of_a_try_before_it_has_ended_everywhere(known_again: bool) -> None:
    state = given(RAISED, SENDING)
    expire = Expire(known_again=known_again)
    assert decide(expire, state, NOW + WITHIN - timedelta(microseconds=1)) == NOTHING
    [event] = decide(expire, state, NOW + WITHIN).events
    assert isinstance(event, NoticePutOff if known_again else NoticeInDoubt)


def test_only_the_current_try_reports() -> None:
    for report in (
        Finish(claim=OTHER),
        Fail(claim=OTHER, message="no"),
        Lose(claim=OTHER, reason="", known_again=True),
    ):
        with pytest.raises(Rejected, match=r"notice\.claim_lost"):
            decide(report, given(RAISED, SENDING), NOW)
    with pytest.raises(Rejected, match=r"notice\.claim_lost"):
        decide(Finish(claim=CLAIM), given(RAISED, SENDING, DOUBT), NOW)


def test_what_is_over_is_tried_again_from_the_first_try_on() -> None:
    for end in (FAILED, DOUBT):
        [event] = decide(Rearm(command_id=CLAIM), given(RAISED, SENDING, end), NOW).events
        state = given(RAISED, SENDING, end, event)
        assert (state.status, state.tries, state.claim, state.again_at) == ("due", 0, None, None)
    for name in ("due", "sending", "sent", "put off"):
        with pytest.raises(Rejected, match=r"notice\.not_over"):
            decide(Rearm(command_id=CLAIM), given(*HISTORIES[name]), NOW)


def test_what_is_not_there_is_not_found() -> None:
    for command in COMMANDS[1:]:
        with pytest.raises(Rejected, match=r"notice\.not_found"):
            decide(command, State(), NOW)


@pytest.mark.parametrize("history", HISTORIES)
def test_every_change_is_an_edge_of_the_lifecycle(history: str) -> None:
    before = given(*HISTORIES[history])
    for command in COMMANDS:
        for now in (NOW, NOW + WITHIN):
            try:
                decided = decide(command, before, now)
            except Rejected:
                continue
            state = before
            for event in decided.events:
                after = CATEGORY.evolve(state, event)
                assert after.status in lifecycle.NOTICE[state.status], (command, state.status, after.status)
                state = after


def test_it_is_looked_at_when_its_time_comes() -> None:
    wakes = {name: CATEGORY.wake_at(given(*events), NOW) for name, events in HISTORIES.items() if events}
    assert wakes == {
        "due": NOW + DUE_WATCHDOG,
        "sending": NOW + WITHIN,
        "sent": None,
        "put off": NOW + PAUSE_FIRST,
        "failed": None,
        "in doubt": None,
        "rearmed": NOW + DUE_WATCHDOG,
    }
