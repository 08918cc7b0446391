"""Facts of a human task. Born by the planner, then written by the decision service alone."""

from typing import Literal
from uuid import UUID

from contracts.base import Actor, BlobRef, Event, Instant
from contracts.events.run import RoleBinding, UserRef
from contracts.registry import event
from minutebook.models.states import DecisionOutcome


@event("decision.opened")
class DecisionOpened(Event):
    """`kind` tells a step of the definition from the question how a failed step goes on.

    Past `due_at` it is reminded once; with `escalate_to` it is then given `due_seconds` more, and `escalate_to` may
    answer it from there on.
    """

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
    kind: Literal["decision", "escalation"] = "decision"
    due_at: Instant | None = None
    due_seconds: float | None = None
    escalate_to: str | None = None
    escalate_binding: RoleBinding | None = None


@event("decision.reminded")
class DecisionReminded(Event):
    """It was due and nobody had answered."""


@event("decision.escalated")
class DecisionEscalated(Event):
    """Its second window passed as well: holders of this role may answer it, too."""

    role: str
    binding: RoleBinding


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


DecisionEvent = DecisionOpened | DecisionReminded | DecisionEscalated | DecisionAnswered | DecisionWithdrawn
