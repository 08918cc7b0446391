"""What follows from a command to an effect."""

from datetime import datetime
from typing import Final, assert_never

from contracts.errors import Rejected
from contracts.events.effect import (
    EffectCancelled,
    EffectFailed,
    EffectInDoubt,
    EffectPending,
    EffectRearmed,
    EffectSucceeded,
)
from libs.domain import lifecycle
from libs.domain.core import NOTHING, Decided, Guard, facts
from libs.domain.effect.commands import (
    Begin,
    Cancel,
    Command,
    Doubt,
    Expire,
    Fail,
    Finish,
    Look,
    Rearm,
    Rest,
    Settle,
)
from libs.domain.effect.settling import back_link, look, settle
from libs.domain.effect.state import State, is_over

RESTORED: Final = "the record was restored to an earlier point, and what was lost may have made this write"


def decide(command: Command, state: State, now: datetime) -> Decided:
    """Return what follows from a command; nothing when it is already true.

    Raises:
        Rejected: ``effect.not_found`` (404); ``effect.claim_lost`` (409) for a report of a call that is not the
            current one; for a verdict ``effect.not_yours`` (403), and 409: ``effect.settled`` with who and when,
            ``effect.not_in_doubt``, ``effect.under_way`` with when it is over.
    """
    if state.run_id is None:
        raise Rejected("effect.not_found", "there is no such effect", status=404)
    match command:
        case Begin():
            return _begin(command, state, now)
        case Finish() | Fail() | Doubt():
            return _report(command, state, now)
        case Expire():
            if state.status != "pending" or state.claim is None or not is_over(state, now):
                return NOTHING
            return facts(EffectInDoubt(at=now, claim=state.claim, reason="the call was announced and never reported"))
        case Settle():
            return settle(command, state, now)
        case Look():
            return look(command, state, now)
        case Rearm():
            if state.status != "failed" or command.arm <= state.arm:
                return NOTHING
            return facts(EffectRearmed(at=now, arm=command.arm, valid_until=command.valid_until))
        case Cancel():
            if state.status != "declared" or state.kind == "back_link":
                return NOTHING
            return facts(EffectCancelled(at=now, reason=command.reason))
        case Rest():
            return NOTHING
        case _:
            assert_never(command)


def _begin(command: Begin, state: State, now: datetime) -> Decided:
    if state.status != "declared":
        return NOTHING
    assert state.run_id is not None
    guards = () if state.kind == "back_link" else (Guard("run", state.run_id, lifecycle.RUN_ACTIVE),)
    if command.restored:
        return facts(EffectInDoubt(at=now, claim=None, reason=RESTORED), guards=guards)
    if state.valid_until is not None and now >= state.valid_until:
        message = f"the approval was good until {state.valid_until.isoformat()}, so nothing was sent"
        stale = EffectFailed(at=now, claim=None, failure_class="missing_data", message=message, expired=True)
        return facts(stale, guards=guards)
    arm = max(state.arm, command.arm)
    pending = EffectPending(at=now, claim=command.claim, arm=arm, over_at=now + command.over_within)
    return facts(pending, guards=guards)


def _report(command: Finish | Fail | Doubt, state: State, now: datetime) -> Decided:
    """What became of a call. Knowledge that comes after the doubt settles it, from the same call alone."""
    if command.claim != state.claim:
        raise Rejected("effect.claim_lost", "this call is not the current one of its effect", status=409)
    if state.status not in {"pending", "in_doubt"}:
        return NOTHING
    match command:
        case Finish():
            done = EffectSucceeded(at=now, claim=command.claim, reference=command.reference, response=command.response)
            return Decided(events=(done,), births=back_link(command, state, now), blobs=command.blobs)
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
