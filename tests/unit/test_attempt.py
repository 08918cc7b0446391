"""Attempts: given events, when command, then events."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from contracts.base import BlobRef, Event
from contracts.errors import Rejected
from contracts.events.attempt import (
    AttemptCancelled,
    AttemptFailed,
    AttemptLeaseLost,
    AttemptQueued,
    AttemptStarted,
    AttemptSucceeded,
    Usage,
)
from libs.domain.attempt import (
    CATEGORY,
    Cancel,
    Command,
    Fail,
    LoseLease,
    Start,
    State,
    Succeed,
    decide,
    evolve,
)
from libs.domain.core import Decided
from libs.domain.lifecycle import ATTEMPT, terminal

NOW = datetime(2026, 11, 2, 7, 0, tzinfo=UTC)
ATTEMPT_ID, RUN, CLAIM, OTHER = (UUID(int=n) for n in range(1, 5))
OUTPUT = BlobRef(digest="a" * 64, bytes=2)
USAGE = Usage(input_tokens=10, output_tokens=5)

QUEUED = AttemptQueued(
    at=NOW,
    run_id=RUN,
    step="draft",
    round=1,
    number=2,
    executor="echo",
    queue="slow",
    request=BlobRef(digest="b" * 64, bytes=9),
)
STARTED = AttemptStarted(at=NOW, claim=CLAIM, runner="r1")
LOST = AttemptLeaseLost(at=NOW, claim=CLAIM, count=1)
SUCCEEDED = AttemptSucceeded(at=NOW, claim=CLAIM, output=OUTPUT, usage=USAGE, cost_microdollars=7, model="m", turns=1)
FAILED = AttemptFailed(
    at=NOW,
    claim=CLAIM,
    failure_class="timeout",
    message="late",
    usage=USAGE,
    cost_microdollars=7,
    model="m",
    turns=1,
)
CANCELLED = AttemptCancelled(at=NOW, reason="no longer needed")

START = Start(claim=CLAIM, runner="r1")
SUCCEED = Succeed(claim=CLAIM, output=OUTPUT, content=b"{}", usage=USAGE, cost_microdollars=7, model="m", turns=1)
FIRST = SUCCEED.model_copy(update={"runner": "r1"})
FAIL = Fail(claim=CLAIM, failure_class="timeout", message="late", usage=USAGE, cost_microdollars=7, model="m", turns=1)
LOSE = LoseLease(attempt_id=ATTEMPT_ID, claim=CLAIM, lost_max=3)
CANCEL = Cancel(reason="no longer needed")


def when(given: Sequence[Event], command: Command) -> Decided:
    return decide(command, CATEGORY.fold(tuple(given)), NOW)


@pytest.mark.parametrize(
    "given, command, then",
    [
        pytest.param([QUEUED], START, [STARTED], id="a claim's first report starts it"),
        pytest.param([QUEUED, STARTED], START, [], id="started is started"),
        pytest.param([QUEUED, STARTED], SUCCEED, [SUCCEEDED], id="the claim's result ends it"),
        pytest.param([QUEUED, STARTED, SUCCEEDED], SUCCEED, [], id="a result reported twice"),
        pytest.param([QUEUED, STARTED], FAIL, [FAILED], id="the claim's failure ends it"),
        pytest.param([QUEUED, STARTED, FAILED], FAIL, [], id="a failure reported twice"),
        pytest.param(
            [QUEUED],
            FAIL.model_copy(update={"claim": None}),
            [FAILED.model_copy(update={"claim": None})],
            id="nobody can start it",
        ),
        pytest.param([QUEUED], FIRST, [STARTED, SUCCEEDED], id="a result that is the first report"),
        pytest.param([QUEUED, STARTED], FIRST, [SUCCEEDED], id="a result that was no first report"),
        pytest.param([QUEUED, STARTED, SUCCEEDED], FIRST, [], id="a first report sent twice"),
        pytest.param(
            [QUEUED],
            FAIL.model_copy(update={"runner": "r1"}),
            [STARTED, FAILED],
            id="a failure that is the first",
        ),
        pytest.param([QUEUED, STARTED], LOSE, [LOST], id="its lease ends"),
        pytest.param([QUEUED], LOSE, [LOST], id="its lease ends before it started"),
        pytest.param([QUEUED, STARTED, LOST], LOSE, [], id="a lease lost twice"),
        pytest.param([QUEUED, STARTED, SUCCEEDED], LOSE, [], id="a lease of what ended"),
        pytest.param([QUEUED], CANCEL, [CANCELLED], id="cancelled while queued"),
        pytest.param([QUEUED, STARTED], CANCEL, [CANCELLED], id="cancelled while running"),
        pytest.param([QUEUED, STARTED, CANCELLED], CANCEL, [], id="cancelled twice"),
        pytest.param([QUEUED, STARTED, SUCCEEDED], CANCEL, [], id="cancelled too late"),
    ],
)
def test_what_follows(given: Sequence[Event], command: Command, then: Sequence[Event]) -> None:
    assert when(given, command).events == tuple(then)


@pytest.mark.parametrize(
    "given, command, code, status",
    [
        pytest.param([], START, "attempt.not_found", 404, id="no such attempt"),
        pytest.param([QUEUED], SUCCEED, "attempt.claim_lost", 409, id="a result of what never started"),
        pytest.param([QUEUED, STARTED, LOST], SUCCEED, "attempt.claim_lost", 409, id="a result after the lease"),
        pytest.param([QUEUED, LOST], FIRST, "attempt.claim_lost", 409, id="a first report after the lease"),
        pytest.param([QUEUED, STARTED, LOST], START, "attempt.claim_lost", 409, id="a start after the lease"),
        pytest.param([QUEUED, STARTED], Start(claim=OTHER, runner="r2"), "attempt.claim_lost", 409, id="two starts"),
        pytest.param(
            [QUEUED, STARTED], SUCCEED.model_copy(update={"claim": OTHER}), "attempt.claim_lost", 409, id="old claim"
        ),
        pytest.param(
            [QUEUED, STARTED], FAIL.model_copy(update={"claim": OTHER}), "attempt.claim_lost", 409, id="old failure"
        ),
        pytest.param(
            [QUEUED, STARTED], FAIL.model_copy(update={"claim": None}), "attempt.claim_lost", 409, id="nobody's report"
        ),
        pytest.param(
            [QUEUED, STARTED], LOSE.model_copy(update={"claim": OTHER}), "attempt.claim_lost", 409, id="old lease"
        ),
        pytest.param([QUEUED, STARTED, CANCELLED], SUCCEED, "attempt.ended", 409, id="a result of what was cancelled"),
        pytest.param([QUEUED, STARTED, FAILED], SUCCEED, "attempt.ended", 409, id="a result of what failed"),
        pytest.param([QUEUED, STARTED, SUCCEEDED], FAIL, "attempt.ended", 409, id="a failure of what succeeded"),
        pytest.param([QUEUED, STARTED, SUCCEEDED], START, "attempt.ended", 409, id="a start of what ended"),
    ],
)
def test_what_is_refused(given: Sequence[Event], command: Command, code: str, status: int) -> None:
    with pytest.raises(Rejected) as refused:
        when(given, command)

    assert (refused.value.code, refused.value.status) == (code, status)


def test_a_result_brings_its_content_along() -> None:
    assert when([QUEUED, STARTED], SUCCEED).blobs == {OUTPUT.digest: b"{}"}


def test_an_attempt_whose_lease_was_lost_is_ready_again_on_its_own_queue() -> None:
    decided = when([QUEUED, STARTED], LOSE)

    assert decided.ready == {ATTEMPT_ID: "work.echo.slow"}


def test_the_third_lost_lease_fails_the_attempt_and_queues_nothing() -> None:
    given: list[Event] = [QUEUED]
    for count in (1, 2):
        claim = uuid4()
        given += [AttemptStarted(at=NOW, claim=claim, runner="r"), AttemptLeaseLost(at=NOW, claim=claim, count=count)]

    decided = when([*given, STARTED], LOSE)

    lost, failed = decided.events
    assert lost == AttemptLeaseLost(at=NOW, claim=CLAIM, count=3)
    assert isinstance(failed, AttemptFailed)
    assert failed.failure_class == "connector_unavailable"
    assert failed.message.startswith("lease lost 3 times")
    assert not decided.ready


def test_another_runner_takes_over_after_a_lost_lease() -> None:
    taken_over = AttemptStarted(at=NOW, claim=OTHER, runner="r2")

    assert when([QUEUED, STARTED, LOST], Start(claim=OTHER, runner="r2")).events == (taken_over,)
    state = CATEGORY.fold((QUEUED, STARTED, LOST, taken_over))
    assert (state.status, state.claim, state.runner, state.lost) == ("running", OTHER, "r2", 1)


def test_the_state_holds_what_the_facts_say() -> None:
    state = CATEGORY.fold((QUEUED, STARTED, SUCCEEDED))

    assert state == State(
        status="succeeded",
        run_id=RUN,
        step="draft",
        round=1,
        number=2,
        executor="echo",
        queue="slow",
        request=QUEUED.request,
        claim=CLAIM,
        runner="r1",
        output=OUTPUT,
        usage=USAGE,
        cost_microdollars=7,
        model="m",
        turns=1,
    )
    assert CATEGORY.columns(state) == {
        "run_id": RUN,
        "step": "draft",
        "round": 1,
        "number": 2,
        "cost_microdollars": 7,
        "failure_class": None,
    }
    assert CATEGORY.run_id(state) == RUN


@pytest.mark.parametrize(
    "given, wakes",
    [([QUEUED], False), ([QUEUED, STARTED], True), ([QUEUED, STARTED, LOST], False), ([QUEUED, CANCELLED], False)],
)
def test_only_a_running_attempt_has_a_clock(given: Sequence[Event], wakes: bool) -> None:
    wake_at = CATEGORY.wake_at(CATEGORY.fold(tuple(given)), NOW)

    assert (wake_at is not None) == wakes
    assert wake_at is None or wake_at == NOW + timedelta(seconds=90)


def test_every_change_of_state_is_an_edge_of_the_lifecycle() -> None:
    """Walk every state that commands can reach and hold each step against the table."""
    commands: list[Command] = [START, SUCCEED, FAIL, LOSE, CANCEL, FAIL.model_copy(update={"claim": None})]
    seen: set[tuple[str, str]] = {("absent", "queued")}
    todo = [CATEGORY.fold((QUEUED,))]
    known = set(todo)
    while todo:
        state = todo.pop()
        for command in (*commands, Start(claim=OTHER, runner="r2"), LOSE.model_copy(update={"claim": OTHER})):
            try:
                decided = decide(command, state, NOW)
            except Rejected:
                continue
            after = state
            for event in decided.events:
                before, after = after, evolve(after, event)
                if before.status != after.status:
                    seen.add((before.status, after.status))
            if after not in known and after.lost <= 3:
                known.add(after)
                todo.append(after)

    edges = {(state, target) for state, targets in ATTEMPT.items() for target in targets}
    assert seen == edges
    assert CATEGORY.terminal == terminal(ATTEMPT)
