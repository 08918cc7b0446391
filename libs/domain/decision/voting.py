"""When a quorum is reached, and when it cannot be reached any more. Votes are counted by the person whose they are."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from libs.domain.decision.capacities import bar_of
from libs.domain.decision.state import State
from minutebook.models.states import DecisionOutcome


@dataclass(frozen=True, slots=True)
class Tally:
    """How the votes stand. `missing` are the approvals that are still needed, in all and by role where one asks."""

    approvals: int
    needed: int
    missing: int
    missing_of: dict[str, int]

    @property
    def reached(self) -> bool:
        return self.missing == 0 and not self.missing_of


def tally(state: State, *, more: Collection[UUID] = ()) -> Tally:
    """Count the approvals, as if `more` people had approved too. Without a quorum one approval is needed."""
    approving = {b.person for b in state.ballots if b.outcome == "approve" and b.person is not None} | set(more)
    if state.quorum is None:
        return Tally(len(approving), 1, max(0, 1 - len(approving)), {})
    of_role = {seat.role: approving.intersection(seat.voters) for seat in state.seats or ()}
    missing_of = {
        group.role: left for group in state.quorum.groups if (left := group.need - len(of_role.get(group.role, ()))) > 0
    }
    return Tally(len(approving), state.quorum.need, max(0, state.quorum.need - len(approving)), missing_of)


def can_vote(state: State, *, gone: Collection[UUID] = ()) -> frozenset[UUID]:
    """Who of the named voters has not voted and is not barred. Who voted for another has, where a person votes once."""
    assert state.quorum is not None, "only a quorum has voters"
    voted = {ballot.person for ballot in state.ballots}
    if state.quorum.distinct:
        voted |= {ballot.by.id for ballot in state.ballots}
    seated = {voter for seat in state.seats or () for voter in seat.voters}
    return frozenset(voter for voter in seated - voted - set(gone) if bar_of(state, voter) is None)


def reachable(state: State, *, gone: Collection[UUID] = ()) -> bool:
    """Whether the approvals that are needed can still come."""
    return tally(state, more=can_vote(state, gone=gone)).reached


def asked_for_most(state: State) -> DecisionOutcome | None:
    """What most of those ask for who did not approve, a rejection where they tie; None when all approved.

    Where a rejection is not offered, a tie goes to what was asked for first.
    """
    counts = Counter(ballot.outcome for ballot in state.ballots if ballot.outcome != "approve")
    if not counts:
        return None
    most = max(counts.values())
    tied = [outcome for outcome, count in counts.items() if count == most]
    return "reject" if len(tied) > 1 and "reject" in state.outcomes else tied[0]
