"""How an effect in doubt is settled: by a person's verdict, or by what the target shows."""

from datetime import datetime
from typing import Final

from contracts.base import Actor, Principal
from contracts.errors import Rejected
from contracts.events.effect import EffectDeclared, EffectProbed, EffectSettled
from libs.domain.access import is_administrator
from libs.domain.core import NOTHING, Birth, Decided, facts
from libs.domain.effect.commands import Finish, Look, Settle
from libs.domain.effect.state import State, is_over, over_no_earlier
from minutebook.models.states import SettleVerdict

ABSENT_LOOKS: Final = 2
"""Looks in a row that must not find a write before its absence is believed, where the target shows writes at once."""


def must_be_settleable(principal: Principal, state: State, now: datetime) -> None:
    """Refuse a verdict or a probe by a person who may not have it, or of what is not in doubt, or not yet.

    Raises:
        Rejected: as `decide` does.
    """
    if state.run_id is None:
        raise Rejected("effect.not_found", "there is no such effect", status=404)
    if not is_administrator(principal):
        raise Rejected("effect.not_yours", "effects in doubt are settled by administrators", status=403)
    settled = state.settled
    if state.status != "in_doubt" and settled is not None:
        at = settled.at.isoformat()
        raise Rejected(
            "effect.settled",
            f"{settled.by.name} settled it as {settled.verdict} at {at}; it is {state.status} now",
            status=409,
            who=settled.by.name,
            when=at,
            verdict=settled.verdict,
            state=state.status,
        )
    if state.status not in {"in_doubt", "pending"}:
        raise Rejected(
            "effect.not_in_doubt",
            f"the effect is {state.status}; only what is in doubt is settled",
            status=409,
            state=state.status,
        )
    if not is_over(state, now):
        assert state.over_at is not None
        over_at = state.over_at.isoformat()
        message = f"the call may still be under way until {over_at}; settle it then, by what the target shows"
        raise Rejected("effect.under_way", message, status=409, over_at=over_at)
    if state.status == "pending":
        message = "the call is over and nobody has said so yet; in a moment it is in doubt, and can be settled"
        raise Rejected("effect.not_in_doubt", message, status=409, state=state.status)


def settle(command: Settle, state: State, now: datetime) -> Decided:
    must_be_settleable(command.principal, over_no_earlier(state, command.not_before), now)
    if command.arm != state.arm:
        message = (
            f"the verdict is on the call of arm {command.arm}, and that of arm {state.arm} is in doubt now; "
            "look at the target again"
        )
        raise Rejected("effect.stale", message, status=409, arm=state.arm)
    return _settled(command, state, now, verdict=command.verdict, by=command.principal.actor)


def look(command: Look, state: State, now: datetime) -> Decided:
    """What a look says of a call that was made again since, or was settled, says nothing any more."""
    if state.status != "in_doubt" or (command.claim, command.look) != (state.claim, state.looks + 1):
        return NOTHING
    if command.result == "found":
        return _settled(command, state, now, verdict="landed", by=command.by)
    absent = state.absent + 1 if command.result == "absent" else 0
    if command.absent_is_not_landed and absent >= ABSENT_LOOKS:
        return _settled(command, state, now, verdict="try_again", by=command.by)
    return facts(EffectProbed(at=now, result=command.result, message=command.message, tries=command.look))


def _settled(command: Settle | Look, state: State, now: datetime, *, verdict: SettleVerdict, by: Actor) -> Decided:
    person = isinstance(command, Settle)
    landed = verdict == "landed"
    settled = EffectSettled(
        at=now,
        command_id=command.command_id,
        verdict=verdict,
        source="operator" if person else "probe",
        by=by,
        reference=command.reference if landed else None,
        comment=command.comment if isinstance(command, Settle) else command.message,
        response=command.response if landed else None,
        arm=state.arm + 1 if verdict == "try_again" else state.arm,
    )
    births = back_link(command, state, now) if landed else ()
    return Decided(events=(settled,), births=births, blobs=command.blobs if landed else {})


def back_link(command: Finish | Settle | Look, state: State, now: datetime) -> tuple[Birth, ...]:
    """The back-link of a write that stands: in the same append, so that no crash can come between."""
    link = command.back_link
    if link is None or state.kind == "back_link":
        return ()
    assert state.run_id is not None
    assert state.owner is not None
    declared = EffectDeclared(
        at=now,
        run_id=state.run_id,
        step=state.step,
        key=state.key,
        system=state.system,
        tool=link.tool,
        arguments=link.arguments,
        owner=state.owner,
        kind="back_link",
        of=command.effect_id,
    )
    return (Birth(category="effect", stream_id=link.effect_id, event=declared),)
