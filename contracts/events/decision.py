"""Facts of a human task. Born by the planner, then written by the decision service alone."""

from uuid import UUID

from contracts.base import Actor, BlobRef, Event, Frozen
from contracts.events.run import UserRef
from contracts.registry import event
from minutebook.models.states import DecisionOutcome


class RoleBinding(Frozen):
    """What a workflow role resolves to: a holder has one of the platform roles or is in one of the groups."""

    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@event("decision.opened")
class DecisionOpened(Event):
    run_id: UUID
    definition_id: str
    step: str
    title: str
    round: int
    role: str
    binding: RoleBinding
    outcomes: tuple[DecisionOutcome, ...]
    artifact_step: str | None
    artifact: BlobRef | None
    initiated_by: UserRef
    project_id: str | None


@event("decision.answered")
class DecisionAnswered(Event):
    """The one answer. `command_id` lets the same command be answered alike again."""

    command_id: UUID
    outcome: DecisionOutcome
    by: Actor
    comment: str | None
    artifact: BlobRef | None
    revised: BlobRef | None


@event("decision.withdrawn")
class DecisionWithdrawn(Event):
    reason: str


DecisionEvent = DecisionOpened | DecisionAnswered | DecisionWithdrawn
