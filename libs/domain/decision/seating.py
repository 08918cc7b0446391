"""Naming the voters of a quorum. They stay as they are named, so that nobody becomes a voter over an open vote."""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from contracts.errors import Broken
from contracts.events.decision import DecisionSeated, Seat
from libs.domain.decision.capacities import roles_of
from libs.domain.decision.commands import Seating
from libs.domain.decision.evolve import evolve
from libs.domain.decision.state import State
from libs.domain.decision.voting import reachable


def needs_seats(state: State) -> bool:
    """Whether voters are to be named: it was just opened, or passed on to a role that had none."""
    if state.quorum is None or state.status != "open":
        return False
    return state.seats is None or not roles_of(state).keys() <= {seat.role for seat in state.seats}


def seated(state: State, holders: tuple[Seat, ...] | None, now: datetime) -> tuple[tuple[DecisionSeated, ...], State]:
    """Name the voters where that is due, of the holders of every role; the fact, if any, and the state after it.

    Raises:
        contracts.errors.Broken: nobody looked who holds the roles.
    """
    if not needs_seats(state):
        return (), state
    if holders is None:
        raise Broken("decision.unseated", "the voters of a quorum are to be named, and nobody looked who they are")
    kept = state.seats or ()
    added = tuple(seat for seat in holders if seat.role in roles_of(state).keys() - {one.role for one in kept})
    event = DecisionSeated(
        at=now,
        seats=(*kept, *(_without(seat, state.relieved) for seat in added)),
        reason="opened" if state.seats is None else "escalated",
    )
    return (event,), evolve(state, event)


def seat(command: Seating, state: State, now: datetime) -> tuple[DecisionSeated, ...]:
    """Name the voters for the first time, or anew when those who are gone leave too few."""
    events, after = seated(state, command.seats, now)
    if after.quorum is None or after.status != "open" or reachable(after, gone=command.gone):
        return events
    anew = _anew(after, command)
    if anew == after.seats:
        return events
    return (*events, DecisionSeated(at=now, seats=anew, reason="left"))


def _anew(state: State, command: Seating) -> tuple[Seat, ...]:
    """Who is there of the voters, who has voted whether there or not, and who holds the roles now."""
    voted = {ballot.person for ballot in state.ballots}
    left = [voter for voter in command.gone if voter not in voted]
    now = {seat.role: seat.voters for seat in command.seats}
    return tuple(
        _without(Seat(role=one.role, voters=_once((*one.voters, *now.get(one.role, ())))), (*left, *state.relieved))
        for one in state.seats or ()
    )


def _without(seat: Seat, people: Iterable[UUID]) -> Seat:
    away = set(people)
    return seat.model_copy(update={"voters": tuple(voter for voter in seat.voters if voter not in away)})


def _once(people: Iterable[UUID]) -> tuple[UUID, ...]:
    return tuple(dict.fromkeys(people))
