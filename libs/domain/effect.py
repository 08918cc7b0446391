"""One write to the outside: declared with its step, pending before the call, then what became of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal, assert_never
from uuid import UUID

from pydantic import Field

from contracts.base import BlobRef, Event, Frozen
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
from libs.domain import lifecycle
from libs.domain.core import NOTHING, Category, Decided, Guard, facts
from minutebook.models.states import FailureClass

CALL_TIMEOUT_MAX: Final = timedelta(seconds=120)
"""No call takes longer, whatever its declaration asks for."""

OVERDUE_AFTER: Final = timedelta(seconds=150)
"""A pending effect this old has no verdict to wait for: later than the latest start, the longest call and a margin.

A constant, not a setting: a verdict that comes while a call may still be under way invites a second write.
"""

DECLARED_WATCHDOG: Final = timedelta(seconds=60)
"""When a declared effect is looked at again, should its message have been lost."""

RESTORED: Final = "the record was restored to an earlier point, and what was lost may have made this write"


@dataclass(frozen=True, slots=True)
class State:
    """Where an effect stands. `claim` names the call that was announced last, `arm` how often it was armed again."""

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
    pending_at: datetime | None = None
    reference: str | None = None
    response: BlobRef | None = None
    failure_class: FailureClass | None = None
    message: str | None = None
    kind: Literal["write", "back_link"] = "write"
    expired: bool = False


class Begin(Frozen):
    """Announce one call, before it is made. Holds only while the run is active.

    `arm` is what the run last asked for; it may be ahead of a declared effect that no call was announced for.
    `restored` says that the run is older than the era of the record, and that nobody has said since whether the write
    is there: what was lost may hold its call.
    """

    claim: UUID
    arm: int = 0
    restored: bool = False


class Finish(Frozen):
    """The target answered: it is written. `blobs` hold the response by digest."""

    claim: UUID
    reference: str | None
    response: BlobRef
    blobs: dict[str, bytes]


class Fail(Frozen):
    """Surely not written. `blobs` hold the response by digest."""

    claim: UUID
    failure_class: FailureClass
    message: str
    response: BlobRef | None = None
    blobs: dict[str, bytes] = Field(default_factory=dict)


class Doubt(Frozen):
    """The call was sent and its answer never came."""

    claim: UUID
    reason: str


class Expire(Frozen):
    """Nobody here is calling: in doubt once the call cannot be under way anywhere."""


class Rearm(Frozen):
    """Let a failed effect be tried again, once per `arm`."""

    arm: int


class Cancel(Frozen):
    """The run was cancelled before anything was announced."""

    reason: str


class Look(Frozen):
    """Nothing to say: only moves a wake that has passed."""


Command = Begin | Finish | Fail | Doubt | Expire | Rearm | Cancel | Look


def decide(command: Command, state: State, now: datetime) -> Decided:
    """Return what follows from a command; nothing when it is already true.

    Raises:
        Rejected: ``effect.not_found`` (404); ``effect.claim_lost`` (409) for a report of a call that is not the
            current one.
    """
    if state.run_id is None:
        raise Rejected("effect.not_found", "there is no such effect", status=404)
    match command:
        case Begin():
            if state.status != "declared":
                return NOTHING
            guards = (Guard("run", state.run_id, lifecycle.RUN_ACTIVE),)
            if command.restored:
                return facts(EffectInDoubt(at=now, claim=None, reason=RESTORED), guards=guards)
            arm = max(state.arm, command.arm)
            pending = EffectPending(at=now, claim=command.claim, arm=arm, over_at=now + OVERDUE_AFTER)
            return facts(pending, guards=guards)
        case Finish() | Fail() | Doubt():
            return _report(command, state, now)
        case Expire():
            if state.status != "pending" or state.claim is None or now < _overdue_at(state, now):
                return NOTHING
            return facts(EffectInDoubt(at=now, claim=state.claim, reason="the call was announced and never reported"))
        case Rearm():
            if state.status != "failed" or command.arm <= state.arm:
                return NOTHING
            return facts(EffectRearmed(at=now, arm=command.arm))
        case Cancel():
            return facts(EffectCancelled(at=now, reason=command.reason)) if state.status == "declared" else NOTHING
        case Look():
            return NOTHING
        case _:
            assert_never(command)


def _report(command: Finish | Fail | Doubt, state: State, now: datetime) -> Decided:
    """What became of a call. Knowledge that comes after the doubt settles it, from the same call alone."""
    if command.claim != state.claim:
        raise Rejected("effect.claim_lost", "this call is not the current one of its effect", status=409)
    if state.status not in {"pending", "in_doubt"}:
        return NOTHING
    match command:
        case Finish():
            done = EffectSucceeded(at=now, claim=command.claim, reference=command.reference, response=command.response)
            return facts(done, blobs=command.blobs)
        case Fail():
            failed = EffectFailed(
                at=now,
                claim=command.claim,
                failure_class=command.failure_class,
                message=command.message,
                response=command.response,
            )
            return facts(failed, blobs=command.blobs)
        case Doubt():
            if state.status == "in_doubt":
                return NOTHING
            return facts(EffectInDoubt(at=now, claim=command.claim, reason=command.reason))
        case _:
            assert_never(command)


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
            )
        case EffectPending():
            return replace(state, status="pending", claim=event.claim, arm=event.arm, pending_at=event.at)
        case EffectSucceeded():
            return replace(
                state,
                status="succeeded",
                reference=event.reference,
                response=event.response,
                failure_class=None,
                message=None,
            )
        case EffectFailed():
            return replace(
                state,
                status="failed",
                response=event.response,
                failure_class=event.failure_class,
                message=event.message,
                expired=event.expired,
            )
        case EffectInDoubt():
            return replace(state, status="in_doubt", message=event.reason)
        case EffectRearmed():
            return replace(
                state,
                status="declared",
                arm=event.arm,
                claim=None,
                pending_at=None,
                response=None,
                failure_class=None,
                message=None,
                expired=False,
            )
        case EffectCancelled():
            return replace(state, status="cancelled", message=event.reason)
        case _:
            return state


def _overdue_at(state: State, now: datetime) -> datetime:
    return (state.pending_at or now) + OVERDUE_AFTER


def _wake_at(state: State, now: datetime) -> datetime | None:
    match state.status:
        case "declared":
            return now + DECLARED_WATCHDOG
        case "pending":
            return _overdue_at(state, now)
        case _:
            return None


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
