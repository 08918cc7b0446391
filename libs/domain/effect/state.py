"""The state of an effect: what its facts add up to, and when it must be looked at again."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID

from contracts.base import BlobRef, Event
from contracts.events.effect import (
    EffectCancelled,
    EffectDeclared,
    EffectFailed,
    EffectInDoubt,
    EffectPending,
    EffectProbed,
    EffectRearmed,
    EffectSettled,
    EffectSucceeded,
)
from contracts.events.run import UserRef
from libs.domain import lifecycle
from libs.domain.core import Category
from minutebook.models.states import FailureClass

UNANNOUNCED_OVER: Final = timedelta(seconds=150)
"""When a call is over that this record knows nothing of, since it was restored to a point before its announcement."""

DECLARED_WATCHDOG: Final = timedelta(seconds=60)
"""When a declared effect is looked at again, should its message have been lost."""

PROBE_AGAIN: Final = (timedelta(seconds=10), timedelta(seconds=30), timedelta(minutes=2), timedelta(minutes=10))
"""How long after a look that settled nothing the target is asked again; after the last one an operator is needed."""

BACK_LINK_AGAIN: Final = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 30, 120))
"""When a back-link that was surely not sent is tried again. No run waits for it, so nobody else asks for that."""


@dataclass(frozen=True, slots=True)
class State:
    """Where an effect stands. `claim` names the call that was announced last, `arm` how often it was armed again.

    `over_at` is when that call is over everywhere, `looked_at` when the target was asked last, the `looks`th time;
    `absent` counts how many looks in a row found nothing. `expired` says that the approval had gone stale.
    """

    status: str = "absent"
    run_id: UUID | None = None
    step: str = ""
    key: str = ""
    system: str = ""
    tool: str = ""
    arguments: BlobRef | None = None
    owner: UserRef | None = None
    claim: UUID | None = None
    arm: int = 0
    over_at: datetime | None = None
    reference: str | None = None
    response: BlobRef | None = None
    failure_class: FailureClass | None = None
    message: str | None = None
    kind: Literal["write", "back_link"] = "write"
    of: UUID | None = None
    valid_until: datetime | None = None
    expired: bool = False
    failed_at: datetime | None = None
    looks: int = 0
    absent: int = 0
    looked_at: datetime | None = None
    settled: EffectSettled | None = None


def evolve(state: State, event: Event) -> State:
    """The state after a fact. Total: what it does not know changes nothing."""
    match event:
        case EffectDeclared():
            return State(
                status="declared",
                run_id=event.run_id,
                step=event.step,
                key=event.key,
                system=event.system,
                tool=event.tool,
                arguments=event.arguments,
                owner=event.owner,
                kind=event.kind,
                of=event.of,
                valid_until=event.valid_until,
            )
        case EffectPending():
            return replace(state, status="pending", claim=event.claim, arm=event.arm, over_at=event.over_at)
        case EffectSucceeded():
            return _succeeded(state, reference=event.reference, response=event.response)
        case EffectFailed():
            return replace(
                state,
                status="failed",
                response=event.response,
                failure_class=event.failure_class,
                message=event.message,
                expired=event.expired,
                failed_at=event.at,
            )
        case EffectInDoubt():
            over_at = event.at + UNANNOUNCED_OVER if event.claim is None else state.over_at
            doubted = replace(state, status="in_doubt", message=event.reason, over_at=over_at)
            return replace(doubted, looks=0, absent=0, looked_at=None)
        case EffectProbed():
            absent = state.absent + 1 if event.result == "absent" else 0
            return replace(state, looks=event.tries, absent=absent, looked_at=event.at)
        case EffectSettled():
            return _after_verdict(replace(state, settled=event), event)
        case EffectRearmed():
            return replace(_armed(state, event.arm), valid_until=event.valid_until)
        case EffectCancelled():
            return replace(state, status="cancelled", message=event.reason)
        case _:
            return state


def _after_verdict(state: State, event: EffectSettled) -> State:
    match event.verdict:
        case "landed":
            return _succeeded(state, reference=event.reference, response=event.response)
        case "not_landed":
            # Who found that, and what they wrote, stands in the verdict alone, sealed.
            message = "it was found that it was not written"
            return replace(state, status="failed", failure_class="default", message=message, failed_at=event.at)
        case "try_again":
            return _armed(state, event.arm)


def _succeeded(state: State, *, reference: str | None, response: BlobRef | None) -> State:
    return replace(state, status="succeeded", reference=reference, response=response, failure_class=None, message=None)


def _armed(state: State, arm: int) -> State:
    return replace(
        state,
        status="declared",
        arm=arm,
        claim=None,
        over_at=None,
        response=None,
        failure_class=None,
        message=None,
        expired=False,
    )


def _wake_at(state: State, now: datetime) -> datetime | None:
    match state.status:
        case "declared":
            return now + DECLARED_WATCHDOG
        case "pending":
            return state.over_at
        case "in_doubt":
            return _look_at(state, now)
        case "failed" if state.kind == "back_link" and state.failure_class == "connector_unavailable":
            again = BACK_LINK_AGAIN[state.arm] if state.arm < len(BACK_LINK_AGAIN) else None
            return None if again is None or state.failed_at is None else state.failed_at + again
        case _:
            return None


def _look_at(state: State, now: datetime) -> datetime | None:
    """When the target is asked next whether the write is there; None once it was asked often enough."""
    if state.looks > len(PROBE_AGAIN):
        return None
    if state.looked_at is not None:
        return state.looked_at + PROBE_AGAIN[state.looks - 1]
    return now if state.over_at is None else max(now, state.over_at)


def is_over(state: State, now: datetime) -> bool:
    """Whether no call of this effect can be under way anywhere, not even in a process that was frozen."""
    return state.over_at is None or now >= state.over_at


def over_no_earlier(state: State, moment: datetime | None) -> State:
    """The effect, its last call over at this moment at the earliest, as one may be that a restored record has lost."""
    later = moment is not None and (state.over_at is None or state.over_at < moment)
    return replace(state, over_at=moment) if later else state


def _columns(state: State) -> Mapping[str, Any]:
    return {
        "run_id": state.run_id,
        "step": state.step,
        "key": state.key,
        "system": state.system,
        "tool": state.tool,
        "reference": state.reference,
        "kind": state.kind,
    }


CATEGORY: Final[Category[State]] = Category(
    name="effect",
    initial=State(),
    evolve=evolve,
    status=lambda state: state.status,
    columns=_columns,
    wake_at=_wake_at,
    run_id=lambda state: state.run_id,
    terminal=lifecycle.terminal(lifecycle.EFFECT),
)
