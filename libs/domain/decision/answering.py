"""Answers and votes: whether one is taken, and what it makes of the decision. Every door ends here."""

from datetime import datetime
from uuid import UUID

from contracts.base import BlobRef, Event
from contracts.errors import Rejected
from contracts.events import decision as e
from libs.domain import lifecycle
from libs.domain.access import is_administrator, sees_run, sees_to_decide
from libs.domain.core import NOTHING, Decided, Guard, facts, replace
from libs.domain.decision.capacities import Capacity, bar_of, capacities, roles_of, unbarred, unused
from libs.domain.decision.commands import Answer, Reassign
from libs.domain.decision.evolve import evolve
from libs.domain.decision.seating import seated
from libs.domain.decision.state import Ballot, State
from libs.domain.decision.voting import asked_for_most, reachable, tally
from minutebook.models.states import DecisionOutcome


def answer(command: Answer, state: State, now: datetime) -> Decided:
    """Take an answer; where a quorum is asked for, a vote."""
    principal, run_id, initiator = command.principal, state.run_id, state.initiated_by
    if run_id is None or initiator is None or not sees_to_decide(principal, initiator.id, state.project_id):
        raise Rejected("decision.not_found", "there is no such decision", status=404)
    if _was_heard(command, state):
        return NOTHING
    seating, state = seated(state, command.seats, now)
    free = _free(command, state)
    _must_be_open(state, now)
    _must_fit(command, state)
    if command.revised is not None and command.revised == state.shown:
        command = command.model_copy(update={"revised": None, "blobs": {}})  # it revises nothing
    events = _single(command, state, free[0], now) if state.quorum is None else _vote(command, state, free, now)
    taken = facts(*seating, *events, guards=(Guard("run", run_id, lifecycle.RUN_ACTIVE),), blobs=command.blobs)
    return replace(taken, deadline=state.until)


def reassign(command: Reassign, state: State, now: datetime) -> Decided:
    """Let somebody answer in another's place. The one who is put there must see the run, which the caller has held."""
    principal, run_id, initiator = command.principal, state.run_id, state.initiated_by
    if run_id is None or initiator is None or not sees_run(principal, initiator.id, state.project_id):
        raise Rejected("decision.not_found", "there is no such decision", status=404)
    if _was_heard(command, state):
        return NOTHING
    if not is_administrator(principal):
        raise Rejected("decision.not_yours", "a decision is reassigned by administrators", status=403)
    _must_be_open(state, now)
    seating, state = seated(state, command.seats, now)
    rule = bar_of(state, command.to_user.id)
    if rule is not None:
        raise _not_reassigned(f"{command.to_user.email} may not answer it: {_why(rule)}")
    if command.from_user == command.to_user.id:
        raise _not_reassigned("nobody is put in their own place")
    if state.quorum is not None:
        _must_be_movable(command, state)
    event = e.DecisionReassigned(
        at=now,
        command_id=command.command_id,
        by=principal.actor,
        from_user=command.from_user,
        to_user=command.to_user,
        reason=command.reason,
    )
    return facts(*seating, event, guards=(Guard("run", run_id, lifecycle.RUN_OPEN),))


def _was_heard(command: Answer | Reassign, state: State) -> bool:
    return command.command_id in state.heard


def _must_be_movable(command: Reassign, state: State) -> None:
    """A vote that was cast stays whose it is, and nobody has two seats."""
    voters = {voter for seat in state.seats or () for voter in seat.voters}
    if command.from_user is not None and command.from_user not in voters:
        raise _not_reassigned("the one to be replaced is none of its voters")
    if command.to_user.id in voters:
        raise _not_reassigned(f"{command.to_user.email} is one of its voters already")
    cast = next((ballot for ballot in state.ballots if ballot.person == command.from_user), None)
    if command.from_user is not None and cast is not None:
        raise _not_reassigned(f"the one to be replaced has voted, at {cast.voted_at.isoformat()}")


def _not_reassigned(why: str) -> Rejected:
    return Rejected("decision.not_reassigned", f"the decision was not reassigned: {why}", status=409)


def _free(command: Answer, state: State) -> list[Capacity]:
    """The capacities that four eyes leave to the principal; at least one."""
    principal = command.principal
    mine = capacities(principal, state)
    if not mine:
        roles = " or ".join(repr(role) for role in roles_of(state))
        named = "; its voters were named when it was opened" if state.seats is not None else ""
        raise Rejected(
            "decision.not_yours",
            f"this decision is for the role {roles}, which {principal.name} does not hold{named}",
            status=403,
            role=state.role,
        )
    free = unbarred(principal, state)
    if not free:
        rule = next(rule for each in mine if (rule := bar_of(state, principal.id, each.person)) is not None)
        raise Rejected(
            "decision.barred",
            f"another person has to answer {state.step!r}: {_why(rule)}",
            status=403,
            rule=rule,
        )
    return free


def _why(rule: str) -> str:
    match rule:
        case "initiator":
            return "`not: initiator` bars who started the run"
        case "reviser":
            return "`not: reviser` bars who revised what is decided on"
        case step:
            return f"`not: {step}` bars who decided or completed {step}"


def _must_be_open(state: State, now: datetime) -> None:
    if state.status == "answered":
        who = state.by.name if state.by else None
        when = state.answered_at.isoformat() if state.answered_at else None
        raise Rejected(
            "decision.answered",
            f"{who} answered {state.outcome} at {when}; a decision is answered once",
            status=409,
            who=who,
            when=when,
            outcome=state.outcome,
        )
    if state.status == "withdrawn":
        raise Rejected("decision.withdrawn", f"the decision was withdrawn: {state.withdrawn_because}", status=409)
    if state.until is not None and now >= state.until:
        message = f"nobody answered until {state.until.isoformat()}: it has timed out"
        raise Rejected("decision.timed_out", message, status=409)


def _must_fit(command: Answer, state: State) -> None:
    """The answer is one that is offered, given to what is shown now, and complete."""
    if command.outcome not in state.outcomes:
        raise Rejected(
            "decision.outcome", f"{command.outcome!r} is not offered; answer one of {', '.join(state.outcomes)}"
        )
    shown = state.shown.digest if state.shown is not None else None
    if command.shown is not None and command.shown != shown:
        raise Rejected(
            "decision.stale",
            "what is decided on became another one since it was shown; look at it again",
            status=409,
            shown=shown,
        )
    if (command.outcome == "answer") != (command.answer is not None):
        needs = "an `answer` is given with the outcome `answer`, and with no other"
        raise Rejected("decision.answer", needs)
    if command.revised is None:
        return
    if command.outcome not in {"approve", "request_changes"}:
        message = "only an approval or a request for changes may carry a revised artefact; comment on it instead"
        raise Rejected("decision.revision", message)
    if state.artifact is None:
        raise Rejected("decision.revision", f"the decision {state.step!r} shows no artefact that could be revised")
    if command.outcome == "request_changes" and state.quorum is not None and state.quorum.veto == "none":
        message = "a vote for changes carries no revised artefact; approve with it, or comment on it"
        raise Rejected("decision.revision", message)


def _single(command: Answer, state: State, capacity: Capacity, now: datetime) -> tuple[Event, ...]:
    if command.revised is not None and command.outcome == "approve" and state.bars_reviser:
        return (_revised(command, state, capacity, command.revised, now),)
    return (_answered(command, state, capacity, command.outcome, now),)


def _vote(command: Answer, state: State, free: list[Capacity], now: datetime) -> tuple[Event, ...]:
    assert state.quorum is not None, "a vote is cast where a quorum is asked for"
    capacity = next(iter(unused(command.principal, state)), None)
    if capacity is None:
        raise _voted(command, state, free)
    if command.outcome == "approve" and command.revised is not None:
        return _vote_on_revision(command, state, capacity, command.revised, now)
    after = _with_ballot(command, state, capacity, now)
    outcome = _outcome(command, after)
    if outcome is not None:
        return (_answered(command, state, capacity, outcome, now),)
    return (_ballot(command, state, capacity, now),)


def _outcome(command: Answer, after: State) -> DecisionOutcome | None:
    """What the decision comes to with this vote; None while it goes on."""
    assert after.quorum is not None, "a vote is cast where a quorum is asked for"
    if command.outcome != "approve" and after.quorum.veto == "any":
        return command.outcome
    if command.outcome == "approve" and tally(after).reached:
        return "approve"
    return None if reachable(after) else asked_for_most(after)


def _vote_on_revision(
    command: Answer, state: State, capacity: Capacity, revision: BlobRef, now: datetime
) -> tuple[Event, ...]:
    """Make another one of what is decided on, and approve that where the reviser may."""
    revised = _revised(command, state, capacity, revision, now)
    after = evolve(state, revised)
    if not reachable(after):
        message = "after this revision too few could approve it, since whoever revises may not; comment on it instead"
        raise Rejected("decision.revision", message)
    if after.bars_reviser:
        return (revised,)
    if tally(_with_ballot(command, after, capacity, now)).reached:
        return (_answered(command, replace(state, ballots=()), capacity, "approve", now),)
    return (revised, _ballot(command, after, capacity, now))


def _with_ballot(command: Answer, state: State, capacity: Capacity, now: datetime) -> State:
    return evolve(state, _ballot(command, state, capacity, now))


def _ballot(command: Answer, state: State, capacity: Capacity, now: datetime) -> e.DecisionVoted:
    return e.DecisionVoted(
        at=now,
        command_id=command.command_id,
        outcome=command.outcome,
        by=command.principal.actor,
        on_behalf_of=capacity.instead_of,
        comment=command.comment,
        artifact=state.shown,
    )


def _revised(command: Answer, state: State, capacity: Capacity, revision: BlobRef, now: datetime) -> e.DecisionRevised:
    assert state.shown is not None, "only what shows an artefact is revised"
    return e.DecisionRevised(
        at=now,
        command_id=command.command_id,
        by=command.principal.actor,
        on_behalf_of=capacity.instead_of,
        comment=command.comment,
        artifact=state.shown,
        revised=revision,
        wiped=len(state.ballots),
    )


def _answered(
    command: Answer, state: State, capacity: Capacity, outcome: DecisionOutcome, now: datetime
) -> e.DecisionAnswered:
    votes: tuple[e.Vote, ...] = ()
    if state.quorum is not None:
        last = e.Vote(
            by=command.principal.actor,
            on_behalf_of=capacity.instead_of,
            outcome=command.outcome,
            voted_at=now,
        )
        votes = (*map(_vote_of, state.ballots), last)
    return e.DecisionAnswered(
        at=now,
        command_id=command.command_id,
        outcome=outcome,
        by=command.principal.actor,
        comment=command.comment,
        artifact=state.artifact,
        revised=command.revised or state.revised,
        on_behalf_of=capacity.instead_of,
        answer=command.answer,
        votes=votes,
    )


def _vote_of(ballot: Ballot) -> e.Vote:
    return e.Vote(by=ballot.by, on_behalf_of=ballot.on_behalf_of, outcome=ballot.outcome, voted_at=ballot.voted_at)


def _voted(command: Answer, state: State, free: list[Capacity]) -> Rejected:
    """Why there is no vote left to cast: the one that was."""
    mine: set[UUID | None] = {capacity.person for capacity in free}
    cast = next(b for b in state.ballots if b.by.id == command.principal.id or b.person in mine)
    when = cast.voted_at.isoformat()
    instead = f" for {cast.on_behalf_of.email}" if cast.on_behalf_of else ""
    return Rejected(
        "decision.voted",
        f"{cast.by.name} voted {cast.outcome}{instead} at {when}; a voter votes once on what is shown",
        status=409,
        who=cast.by.name,
        when=when,
        outcome=cast.outcome,
    )
