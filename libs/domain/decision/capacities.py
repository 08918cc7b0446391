"""Who may answer a decision, and in whose place.

A principal may have several capacities: its own, and that of each person who lets it decide for them. Each is judged
like that person, and four eyes bar the principal and that person alike.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from contracts.base import Principal
from contracts.events.run import RoleBinding, UserRef
from libs.domain.access import Member, holds, sees_run
from libs.domain.decision.state import REVISER, State


@dataclass(frozen=True, slots=True)
class Capacity:
    """As whom a principal may answer. `instead_of` is None where it answers for itself."""

    person: UUID
    instead_of: UserRef | None = None


def roles_of(state: State, *, escalated: bool = False) -> Mapping[str, RoleBinding]:
    """The roles whose holders may answer now; with `escalated` as if it had been passed on already."""
    roles = {state.role: state.binding}
    if state.quorum is not None:
        roles |= {group.role: group.binding for group in state.quorum.groups}
    if state.escalated_to is not None:
        roles[state.escalated_to] = state.escalate_binding
    elif escalated and state.escalate_to is not None:
        roles[state.escalate_to] = state.escalate_binding
    return roles


def roles_held(member: Member, state: State) -> frozenset[str]:
    """The roles under which somebody may answer. The voters of a quorum are those that were named, whoever holds now.

    Who was put in somebody's place answers under the decision's own role.
    """
    if state.initiated_by is None or not sees_run(member, state.initiated_by.id, state.project_id):
        return frozenset()
    if state.seats is not None:
        return frozenset(seat.role for seat in state.seats if member.id in seat.voters)
    if member.id in state.relieved:
        return frozenset()
    held = {role for role, binding in roles_of(state).items() if holds(member, binding, project_id=state.project_id)}
    return frozenset(held | {state.role} if member.id in state.assigned else held)


def capacities(principal: Principal, state: State) -> tuple[Capacity, ...]:
    """Every capacity in which the principal may answer, its own first. Four eyes are not judged here."""
    return tuple(_capacities(principal, state))


def _capacities(principal: Principal, state: State) -> Iterator[Capacity]:
    if roles_held(principal, state):
        yield Capacity(principal.id)
    for person in principal.acts_for:
        held = roles_held(person, state)
        if held and (not person.named or held & person.named):
            yield Capacity(person.id, UserRef(id=person.id, email=person.email))


def bar_of(state: State, *people: UUID) -> str | None:
    """The rule of four eyes that bars one of these people; None when none does."""
    for barred in state.barred:
        if barred.user in people or (barred.rule == REVISER and not set(people).isdisjoint(state.revisers)):
            return barred.rule
    return None


def may_answer(principal: Principal, state: State) -> bool:
    """Whether an answer or a vote of the principal would be taken now. That it is open is the caller's to see."""
    return bool(unused(principal, state))


def unbarred(principal: Principal, state: State) -> list[Capacity]:
    """The principal's capacities that four eyes leave to it."""
    return [each for each in capacities(principal, state) if bar_of(state, principal.id, each.person) is None]


def unused(principal: Principal, state: State) -> list[Capacity]:
    """The capacities in which the principal can still answer. Of a quorum each votes once, and where that is asked a
    person once, whoever they vote for.
    """
    free = unbarred(principal, state)
    if state.quorum is None:
        return free
    if state.quorum.distinct and any(ballot.by.id == principal.id for ballot in state.ballots):
        return []
    used = {ballot.person for ballot in state.ballots}
    return [capacity for capacity in free if capacity.person not in used]
