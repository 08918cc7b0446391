"""Commands of a decision, complete with what their decider needs."""

from uuid import UUID

from pydantic import Field

from contracts.base import BlobRef, Frozen, Principal, Sha256
from contracts.events.decision import Seat
from contracts.events.run import UserRef
from minutebook.models.states import DecisionOutcome


class Answer(Frozen):
    """Answer as this principal. `blobs` hold the content of `revised` and `answer` by digest.

    `revised` replaces the artefact on approval; with a request for changes whoever redoes it is shown it. `answer` is
    that of a question. `shown` is the digest of what the person saw. `seats` are the holders of every role that may
    vote, where they are not named yet.
    """

    command_id: UUID
    outcome: DecisionOutcome
    comment: str | None
    revised: BlobRef | None
    blobs: dict[str, bytes]
    principal: Principal
    answer: BlobRef | None = None
    shown: Sha256 | None = None
    seats: tuple[Seat, ...] | None = None


class Reassign(Frozen):
    """Let `to_user` answer in the place of `from_user`, or without one beside those who may."""

    command_id: UUID
    principal: Principal
    from_user: UUID | None
    to_user: UserRef
    reason: str | None
    seats: tuple[Seat, ...] | None = None


class Seating(Frozen):
    """Name the voters of a quorum, as `seats` has the holders of every role that may vote.

    `gone` are people who cannot vote any more: they are made up for where the votes that are needed could not come.
    """

    seats: tuple[Seat, ...] = ()
    gone: frozenset[UUID] = Field(default_factory=frozenset)


class Withdraw(Frozen):
    """Nobody needs to answer any more. `run_over` holds only while the run is over."""

    reason: str
    run_over: bool


class Look(Frozen):
    """Say what its time has come for; moves a wake that has passed. `seats` are as in `Answer`."""

    seats: tuple[Seat, ...] | None = None


Command = Answer | Reassign | Seating | Withdraw | Look
