"""One execution of one step: claimed by a runner, started, and ended by one report of that claim.

A claim is a nonce that PostgreSQL hands out with a lease. The first report records it, and from then on the stream
takes reports of that claim alone: a runner that wakes up late can write nothing. What is done at once is reported once:
its result is then the first report, and the start a fact beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, assert_never
from uuid import UUID

from contracts.base import BlobRef, Event, Frozen, Microdollars
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
from contracts.subjects import work
from libs.domain.core import NOTHING, Category, Decided, facts, replace
from libs.domain.lifecycle import ATTEMPT, terminal
from minutebook.models.states import FailureClass

LOOK_AGAIN: Final = timedelta(seconds=90)
"""A running attempt is looked at no later than this; its lease's end, which is sooner, stands in the head meanwhile."""

NO_USAGE: Final = Usage()
TERMINAL: Final = terminal(ATTEMPT)


@dataclass(frozen=True)
class State:
    """An attempt. `claim` is the one that started it, `lost_claim` the last whose lease ended without a report."""

    status: str = "absent"
    run_id: UUID | None = None
    step: str = ""
    round: int = 0
    number: int = 0
    executor: str = ""
    queue: str = ""
    request: BlobRef | None = None
    claim: UUID | None = None
    runner: str | None = None
    lost: int = 0
    lost_claim: UUID | None = None
    output: BlobRef | None = None
    usage: Usage = NO_USAGE
    cost_microdollars: Microdollars = 0
    failure_class: FailureClass | None = None
    message: str | None = None
    model: str | None = None
    turns: int = 0


class Start(Frozen):
    """The first report of a claim."""

    claim: UUID
    runner: str


class Succeed(Frozen):
    """The result of a claim. `content` is the output's canonical JSON, stored in the same statement.

    `runner` is given where this may be the claim's first report.
    """

    claim: UUID
    runner: str | None = None
    output: BlobRef
    content: bytes
    usage: Usage = NO_USAGE
    cost_microdollars: Microdollars = 0
    model: str | None = None
    turns: int = 0


class Fail(Frozen):
    """Why a claim has no result. `claim` is None for an attempt that nobody could start.

    `runner` is given where this may be the claim's first report.
    """

    claim: UUID | None
    runner: str | None = None
    failure_class: FailureClass
    message: str
    usage: Usage = NO_USAGE
    cost_microdollars: Microdollars = 0
    model: str | None = None
    turns: int = 0


class LoseLease(Frozen):
    """A claim's lease ended, or its runner gave it back. `attempt_id` is the stream's own, to be made ready again."""

    attempt_id: UUID
    claim: UUID
    lost_max: int


class Cancel(Frozen):
    reason: str


Command = Start | Succeed | Fail | LoseLease | Cancel


def decide(command: Command, state: State, now: datetime) -> Decided:
    """Return the facts that follow from a command; nothing when they are already true.

    Raises:
        Rejected: ``attempt.not_found`` (404); ``attempt.claim_lost`` (409) when another claim holds the attempt or
            none does; ``attempt.ended`` (409) when it ended otherwise before.
    """
    if state.status == "absent":
        raise Rejected("attempt.not_found", "there is no such attempt", status=404)
    match command:
        case Start():
            return _start(command, state, now)
        case Succeed(claim=UUID(), runner=str()) | Fail(claim=UUID(), runner=str()) if state.status == "queued":
            started = _start(Start(claim=command.claim, runner=command.runner), state, now).events
            ended = decide(command, CATEGORY.fold(started, state), now)
            return replace(ended, events=started + ended.events)
        case Succeed():
            return _succeed(command, state, now)
        case Fail():
            return _fail(command, state, now)
        case LoseLease():
            return _lose_lease(command, state, now)
        case Cancel():
            if state.status in TERMINAL:
                return NOTHING
            return facts(AttemptCancelled(at=now, reason=command.reason))
        case _:
            assert_never(command)


def _start(command: Start, state: State, now: datetime) -> Decided:
    if state.status == "queued":
        if command.claim == state.lost_claim:
            raise _claim_lost(command.claim)
        return facts(AttemptStarted(at=now, claim=command.claim, runner=command.runner))
    _must_hold(command.claim, state)
    if state.status in TERMINAL:
        raise _ended(state)
    return NOTHING


def _succeed(command: Succeed, state: State, now: datetime) -> Decided:
    _must_hold(command.claim, state)
    if state.status == "succeeded" and state.output == command.output:
        return NOTHING
    if state.status != "running":
        raise _ended(state)
    return facts(
        AttemptSucceeded(
            at=now,
            claim=command.claim,
            output=command.output,
            usage=command.usage,
            cost_microdollars=command.cost_microdollars,
            model=command.model,
            turns=command.turns,
        ),
        blobs={command.output.digest: command.content},
    )


def _fail(command: Fail, state: State, now: datetime) -> Decided:
    if not (command.claim is None and state.claim is None and state.status in ("queued", "failed")):
        _must_hold(command.claim, state)
    if state.status == "failed" and state.failure_class == command.failure_class:
        return NOTHING
    if state.status in TERMINAL:
        raise _ended(state)
    return facts(
        AttemptFailed(
            at=now,
            claim=command.claim,
            failure_class=command.failure_class,
            message=command.message,
            usage=command.usage,
            cost_microdollars=command.cost_microdollars,
            model=command.model,
            turns=command.turns,
        )
    )


def _lose_lease(command: LoseLease, state: State, now: datetime) -> Decided:
    """Queue the attempt again, or fail it once too many leases were lost.

    A claim that never started is unknown to the stream: that it is the current one, the head's claim says.
    """
    if command.claim == state.lost_claim or state.status in TERMINAL:
        return NOTHING
    if state.status == "running":
        _must_hold(command.claim, state)
    count = state.lost + 1
    lost = AttemptLeaseLost(at=now, claim=command.claim, count=count)
    if count < command.lost_max:
        return Decided(events=(lost,), ready={command.attempt_id: work(state.executor, state.queue)})
    failed = AttemptFailed(
        at=now,
        claim=command.claim,
        failure_class="connector_unavailable",
        message=f"lease lost {count} times: no runner that took this attempt lived to report its result",
        usage=NO_USAGE,
        cost_microdollars=0,
        model=None,
        turns=0,
    )
    return facts(lost, failed)


def _must_hold(claim: UUID | None, state: State) -> None:
    """Raise unless this claim is the one that started the attempt."""
    if claim is None or claim != state.claim:
        raise _claim_lost(claim)


def _claim_lost(claim: UUID | None) -> Rejected:
    return Rejected("attempt.claim_lost", f"claim {claim} does not hold this attempt any more", status=409)


def _ended(state: State) -> Rejected:
    return Rejected("attempt.ended", f"the attempt is {state.status} already", status=409)


def evolve(state: State, event: Event) -> State:
    """The state after a fact."""
    match event:
        case AttemptQueued():
            return State(
                status="queued",
                run_id=event.run_id,
                step=event.step,
                round=event.round,
                number=event.number,
                executor=event.executor,
                queue=event.queue,
                request=event.request,
            )
        case AttemptStarted():
            return replace(state, status="running", claim=event.claim, runner=event.runner)
        case AttemptLeaseLost():
            return replace(state, status="queued", claim=None, runner=None, lost=event.count, lost_claim=event.claim)
        case AttemptSucceeded():
            return replace(
                state,
                status="succeeded",
                output=event.output,
                usage=event.usage,
                cost_microdollars=event.cost_microdollars,
                model=event.model,
                turns=event.turns,
            )
        case AttemptFailed():
            return replace(
                state,
                status="failed",
                failure_class=event.failure_class,
                message=event.message,
                usage=event.usage,
                cost_microdollars=event.cost_microdollars,
                model=event.model,
                turns=event.turns,
            )
        case AttemptCancelled():
            return replace(state, status="cancelled", message=event.reason)
        case _:
            return state


def _columns(state: State) -> Mapping[str, Any]:
    return {
        "run_id": state.run_id,
        "step": state.step,
        "round": state.round,
        "number": state.number,
        "cost_microdollars": state.cost_microdollars,
        "failure_class": state.failure_class,
    }


def _wake_at(state: State, now: datetime) -> datetime | None:
    """A queued attempt waits for no clock. Of a running one the lease's end counts, which the claim wrote."""
    return now + LOOK_AGAIN if state.status == "running" else None


CATEGORY: Final[Category[State]] = Category(
    name="attempt",
    initial=State(),
    evolve=evolve,
    status=lambda state: state.status,
    columns=_columns,
    wake_at=_wake_at,
    run_id=lambda state: state.run_id,
    terminal=TERMINAL,
)

__all__ = [
    "CATEGORY",
    "Cancel",
    "Command",
    "Fail",
    "LoseLease",
    "Start",
    "State",
    "Succeed",
    "decide",
    "evolve",
]
