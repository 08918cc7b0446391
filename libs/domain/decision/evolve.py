"""Folding a decision's facts, one at a time. Total: it judges nothing, and what it does not know changes nothing."""

from datetime import timedelta
from uuid import UUID

from contracts.base import Event
from contracts.events import decision as e
from libs.domain.core import replace
from libs.domain.decision.state import UNBOUND, Ballot, State


def evolve(state: State, event: Event) -> State:
    """The state after one more fact."""
    match event:
        case e.DecisionOpened():
            return _opened(event)
        case e.DecisionSeated():
            return replace(state, seats=event.seats)
        case e.DecisionReassigned():
            return _reassigned(state, event)
        case e.DecisionRevised():
            return _revised(state, event)
        case e.DecisionVoted():
            ballot = Ballot(event.command_id, event.outcome, event.by, event.on_behalf_of, event.comment, event.at)
            return replace(state, ballots=(*state.ballots, ballot), heard=(*state.heard, event.command_id))
        case e.DecisionReminded():
            return replace(state, reminded_at=event.at)
        case e.DecisionEscalated():
            return replace(state, escalated_to=event.role, escalate_binding=event.binding)
        case e.DecisionAnswered():
            return _answered(state, event)
        case e.DecisionWithdrawn():
            return replace(state, status="withdrawn", withdrawn_because=event.reason)
        case _:
            return state


def _opened(event: e.DecisionOpened) -> State:
    return State(
        status="open",
        run_id=event.run_id,
        definition_id=event.definition_id,
        step=event.step,
        title=event.title,
        round=event.round,
        role=event.role,
        binding=event.binding,
        outcomes=event.outcomes,
        artifact_step=event.artifact_step,
        artifact=event.artifact,
        initiated_by=event.initiated_by,
        project_id=event.project_id,
        opened_at=event.at,
        kind=event.kind,
        due_at=event.due_at,
        window=timedelta(seconds=event.due_seconds or 0.0),
        until=event.until,
        escalate_to=event.escalate_to,
        escalate_binding=event.escalate_binding or UNBOUND,
        quorum=event.quorum,
        barred=event.barred,
        question=event.question,
        form=event.form,
        previous=event.previous,
    )


def _revised(state: State, event: e.DecisionRevised) -> State:
    return replace(
        state,
        revised=event.revised,
        ballots=(),
        revisers=_with_reviser(state, event),
        heard=(*state.heard, event.command_id),
    )


def _with_reviser(state: State, event: e.DecisionRevised | e.DecisionAnswered) -> tuple[UUID, ...]:
    people = (event.by.id, event.on_behalf_of.id if event.on_behalf_of is not None else None)
    return tuple(dict.fromkeys((*state.revisers, *(person for person in people if person is not None))))


def _reassigned(state: State, event: e.DecisionReassigned) -> State:
    to, instead_of = event.to_user.id, event.from_user
    seats = state.seats
    if seats is not None:
        seats = tuple(seat.model_copy(update={"voters": _moved(seat, state.role, to, instead_of)}) for seat in seats)
    assigned = {*state.assigned, to} - {instead_of}
    relieved = {*state.relieved, *((instead_of,) if instead_of is not None else ())} - {to}
    return replace(
        state,
        seats=seats,
        assigned=tuple(sorted(assigned)),
        relieved=tuple(sorted(relieved)),
        heard=(*state.heard, event.command_id),
    )


def _moved(seat: e.Seat, role: str, to: UUID, instead_of: UUID | None) -> tuple[UUID, ...]:
    """The voters under a role, one of them replaced; who comes beside them votes under the decision's own role."""
    if instead_of is None:
        return seat.voters if seat.role != role or to in seat.voters else (*seat.voters, to)
    return tuple(dict.fromkeys(to if voter == instead_of else voter for voter in seat.voters))


def _answered(state: State, event: e.DecisionAnswered) -> State:
    last = Ballot(event.command_id, event.outcome, event.by, event.on_behalf_of, event.comment, event.at)
    if event.votes:
        last = replace(last, outcome=event.votes[-1].outcome)
    revises = event.revised is not None and event.revised != state.revised
    # It names the votes that count: those that its own revision has wiped are not among them.
    before = state.ballots if len(event.votes) > len(state.ballots) else ()
    return replace(
        state,
        status="answered",
        outcome=event.outcome,
        by=event.by,
        on_behalf_of=event.on_behalf_of,
        comment=event.comment,
        revised=event.revised,
        revisers=_with_reviser(state, event) if revises else state.revisers,
        answer=event.answer,
        answered_at=event.at,
        ballots=(*before, last) if event.votes else state.ballots,
        heard=(*state.heard, event.command_id),
    )
