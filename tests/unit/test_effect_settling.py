"""Given facts, when a command, then facts: effects in doubt, what settles them, and what follows from a success."""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import uuid4

import pytest

from contracts.base import Actor, Event, Principal
from contracts.errors import Rejected
from contracts.events.effect import (
    EffectDeclared,
    EffectFailed,
    EffectInDoubt,
    EffectPending,
    EffectProbed,
    EffectSettled,
    EffectSucceeded,
)
from contracts.events.run import UserRef
from libs.canonical import blob
from libs.domain import lifecycle
from libs.domain.core import NOTHING
from libs.domain.effect import (
    BACK_LINK_AGAIN,
    CATEGORY,
    PROBE_AGAIN,
    UNANNOUNCED_OVER,
    BackLink,
    Begin,
    Cancel,
    Finish,
    Look,
    Settle,
    State,
    decide,
)
from minutebook.models.states import SettleVerdict

NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
OVER_WITHIN = timedelta(seconds=45)
LATER = NOW + OVER_WITHIN
EFFECT, CLAIM, OTHER = uuid4(), uuid4(), uuid4()
RESPONSE, RESPONSE_BYTES = blob({"html_url": "https://example.com/pull/7"})
BLOBS = {RESPONSE.digest: RESPONSE_BYTES}
ADMIN = Principal(
    kind="user",
    id=uuid4(),
    name="ada@example.com",
    tenant_group=uuid4(),
    tenant=uuid4(),
    roles=frozenset({"platform_admin"}),
)
EFFECTS = Actor(kind="system", name="effects")
LINK = BackLink(effect_id=uuid4(), tool="add_comment", arguments=blob({"body": "written by a run"})[0])

DECLARED = EffectDeclared(
    at=NOW,
    run_id=uuid4(),
    step="open_pr",
    key="pull_request:CORE-7",
    system="github",
    tool="create_pull_request",
    arguments=blob({"title": "A title"})[0],
    owner=UserRef(id=uuid4(), email="sam@example.com"),
)
PENDING = EffectPending(at=NOW, claim=CLAIM, arm=0, over_at=LATER)
FAILED = EffectFailed(at=NOW, claim=CLAIM, failure_class="connector_unavailable", message="refused")
DOUBT = EffectInDoubt(at=NOW, claim=CLAIM, reason="no answer")
SUCCEEDED = EffectSucceeded(at=NOW, claim=CLAIM, reference=None, response=RESPONSE)
FINISH = Finish(claim=CLAIM, reference="7", response=RESPONSE, blobs=BLOBS, effect_id=EFFECT, back_link=LINK)
BEGIN = Begin(claim=OTHER, over_within=OVER_WITHIN)

Result = Literal["found", "absent", "ambiguous", "unreachable"]


def given(*events: Event) -> State:
    return CATEGORY.fold(events)


def verdict(said: SettleVerdict) -> Settle:
    return Settle(
        principal=ADMIN,
        command_id=uuid4(),
        effect_id=EFFECT,
        verdict=said,
        arm=0,
        reference="https://example.com/pull/7" if said == "landed" else None,
        comment="I looked",
        response=RESPONSE if said == "landed" else None,
    )


def look(number: int, result: Result, **more: Any) -> Look:
    said = {"claim": CLAIM, "absent_is_not_landed": True, **more}
    return Look(effect_id=EFFECT, by=EFFECTS, look=number, result=result, message=result, **said)


def settled(said: SettleVerdict, command: Settle | Look, *, arm: int = 0) -> EffectSettled:
    person = isinstance(command, Settle)
    return EffectSettled(
        at=LATER,
        command_id=command.command_id,
        verdict=said,
        source="operator" if person else "probe",
        by=ADMIN.actor if person else EFFECTS,
        reference=command.reference,
        comment=command.comment if isinstance(command, Settle) else command.message,
        response=command.response,
        arm=arm,
    )


@pytest.mark.parametrize(
    ("said", "status", "arm"), [("landed", "succeeded", 0), ("not_landed", "failed", 0), ("try_again", "declared", 1)]
)
def test_a_verdict_settles_what_is_in_doubt_once_and_says_whose_it_is(
    said: SettleVerdict, status: str, arm: int
) -> None:
    doubted, command = given(DECLARED, PENDING, DOUBT), verdict(said)
    (event,) = decide(command, doubted, LATER).events
    assert event == settled(said, command, arm=arm)
    after = CATEGORY.fold((event,), doubted)
    assert (after.status, after.arm) == (status, arm)
    assert after.status in lifecycle.EFFECT["in_doubt"]
    with pytest.raises(Rejected) as caught:
        decide(verdict("landed"), after, LATER)
    assert (caught.value.status, caught.value.code) == (409, "effect.settled")
    assert (caught.value.extra["who"], caught.value.extra["when"]) == (ADMIN.name, LATER.isoformat())


def test_a_verdict_on_an_earlier_call_does_not_settle_a_later_one() -> None:
    again = verdict("try_again").model_copy(update={"arm": 0})
    first = given(DECLARED, PENDING, DOUBT)
    (event,) = decide(again, first, LATER).events
    later = EffectPending(at=LATER, claim=OTHER, arm=1, over_at=LATER + OVER_WITHIN)
    second = given(DECLARED, PENDING, DOUBT, event, later, DOUBT.model_copy(update={"claim": OTHER}))
    over = LATER + OVER_WITHIN
    for stale in (again.model_copy(update={"command_id": uuid4()}), verdict("landed").model_copy(update={"arm": 0})):
        with pytest.raises(Rejected) as caught:
            decide(stale, second, over)
        assert (caught.value.status, caught.value.code, caught.value.extra["arm"]) == (409, "effect.stale", 1)
    assert decide(again.model_copy(update={"command_id": uuid4(), "arm": 1}), second, over).events


def test_no_verdict_before_the_call_is_over_everywhere() -> None:
    before = LATER - timedelta(microseconds=1)
    for state in (given(DECLARED, PENDING, DOUBT), given(DECLARED, PENDING)):
        with pytest.raises(Rejected) as caught:
            decide(verdict("try_again"), state, before)
        assert (caught.value.status, caught.value.code) == (409, "effect.under_way")
        assert caught.value.extra["over_at"] == LATER.isoformat()


def test_what_a_restore_left_in_doubt_waits_as_long_as_the_longest_call() -> None:
    restored = given(DECLARED, DOUBT.model_copy(update={"claim": None}))
    with pytest.raises(Rejected):
        decide(verdict("try_again"), restored, NOW + UNANNOUNCED_OVER - timedelta(microseconds=1))
    assert decide(verdict("try_again"), restored, NOW + UNANNOUNCED_OVER).events


@pytest.mark.parametrize("last", [(), (PENDING, SUCCEEDED), (PENDING, FAILED)])
def test_only_what_is_in_doubt_is_settled(last: tuple[Event, ...]) -> None:
    with pytest.raises(Rejected) as caught:
        decide(verdict("landed"), given(DECLARED, *last), LATER)
    assert caught.value.code == "effect.not_in_doubt"


def test_verdicts_are_for_administrators() -> None:
    command = verdict("landed").model_copy(update={"principal": ADMIN.model_copy(update={"roles": frozenset()})})
    with pytest.raises(Rejected) as caught:
        decide(command, given(DECLARED, PENDING, DOUBT), LATER)
    assert (caught.value.status, caught.value.code) == (403, "effect.not_yours")


def test_a_call_that_was_settled_may_not_report_any_more() -> None:
    again = given(DECLARED, PENDING, DOUBT, settled("try_again", verdict("try_again"), arm=1))
    with pytest.raises(Rejected) as caught:
        decide(FINISH, again, LATER)
    assert caught.value.code == "effect.claim_lost"
    (pending,) = decide(BEGIN, again, LATER).events
    assert pending == EffectPending(at=LATER, claim=OTHER, arm=1, over_at=LATER + OVER_WITHIN)


def test_a_look_that_finds_it_settles_it_and_links_it_back() -> None:
    found = look(1, "found", reference="7", response=RESPONSE, back_link=LINK, blobs=BLOBS)
    decided = decide(found, given(DECLARED, PENDING, DOUBT), LATER)
    assert decided.events == (settled("landed", found),)
    (birth,) = decided.births
    assert (birth.category, birth.stream_id) == ("effect", LINK.effect_id)
    assert isinstance(birth.event, EffectDeclared)
    assert (birth.event.kind, birth.event.of, birth.event.tool) == ("back_link", EFFECT, "add_comment")


def test_absence_is_believed_when_two_looks_in_a_row_find_nothing() -> None:
    state = given(DECLARED, PENDING, DOUBT)
    results: tuple[Literal["absent", "unreachable"], ...] = ("absent", "unreachable", "absent")
    for number, result in enumerate(results, start=1):
        (event,) = decide(look(number, result), state, LATER).events
        assert event == EffectProbed(at=LATER, result=result, message=result, tries=number)
        state = CATEGORY.fold((event,), state)
    (event,) = decide(look(4, "absent", absent_is_not_landed=False), state, LATER).events
    assert isinstance(event, EffectProbed)
    last = look(4, "absent")
    assert decide(last, state, LATER).events == (settled("try_again", last, arm=1),)


def test_a_look_at_another_call_or_from_before_another_look_says_nothing() -> None:
    state = given(DECLARED, PENDING, DOUBT)
    assert decide(look(1, "found", claim=OTHER), state, LATER) == NOTHING
    assert decide(look(2, "found"), state, LATER) == NOTHING
    assert decide(look(1, "found"), given(DECLARED, PENDING, SUCCEEDED), LATER) == NOTHING


def test_looks_come_further_and_further_apart_and_end() -> None:
    state = given(DECLARED, PENDING, DOUBT)
    for number, again in enumerate(PROBE_AGAIN, start=1):
        state = CATEGORY.fold(decide(look(number, "unreachable"), state, LATER).events, state)
        assert CATEGORY.wake_at(state, LATER) == LATER + again
    state = CATEGORY.fold(decide(look(len(PROBE_AGAIN) + 1, "unreachable"), state, LATER).events, state)
    assert CATEGORY.wake_at(state, LATER) is None


def test_a_back_link_is_born_with_the_success_and_is_bound_to_no_run() -> None:
    (birth,) = decide(FINISH, given(DECLARED, PENDING), NOW).births
    link = CATEGORY.fold((birth.event,))
    assert decide(BEGIN, link, NOW).guards == ()
    assert decide(Cancel(reason="the run was cancelled"), link, NOW) == NOTHING
    assert decide(FINISH, CATEGORY.fold((PENDING,), link), NOW).births == ()


def test_a_back_link_that_was_not_sent_is_tried_again_by_its_own_wake() -> None:
    link = given(DECLARED.model_copy(update={"kind": "back_link", "of": EFFECT}), PENDING, FAILED)
    assert CATEGORY.wake_at(link, NOW) == NOW + BACK_LINK_AGAIN[0]
    refused = FAILED.model_copy(update={"failure_class": "default"})
    assert CATEGORY.wake_at(CATEGORY.fold((refused,), link), NOW) is None


def test_a_stale_approval_sends_nothing() -> None:
    stale = given(DECLARED.model_copy(update={"valid_until": NOW}))
    (event,) = decide(BEGIN, stale, NOW).events
    assert isinstance(event, EffectFailed)
    assert (event.claim, event.failure_class, event.expired) == (None, "missing_data", True)
    assert CATEGORY.fold((event,), stale).expired
