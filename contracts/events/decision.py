"""Facts of a human task. Born by the planner, then written by the decision service alone."""

from typing import Annotated, Literal
from uuid import UUID

from contracts.base import Actor, BlobRef, Event, Frozen, Instant
from contracts.events.run import RoleBinding, UserRef
from contracts.personal import Personal
from contracts.registry import event
from minutebook.models.states import DecisionOutcome


class QuorumGroup(Frozen):
    """Of the holders of this workflow role, `need` must approve."""

    role: str
    binding: RoleBinding
    need: int


class Quorum(Frozen):
    """How many approvals a decision takes, over all and by group.

    `distinct`: a person approves once, however many roles and delegations they hold. `veto` `any`: the first answer
    that is no approval ends it; `none`: it ends when the approvals that are needed cannot come any more.
    """

    need: int
    distinct: bool = True
    groups: tuple[QuorumGroup, ...] = ()
    veto: Literal["any", "none"] = "any"


class Barred(Frozen):
    """Four eyes: `user` may not answer, because of `rule` (`initiator`, `reviser`, or the step that they decided).

    Who revises is known only later, so a reviser's `user` is None.
    """

    rule: str
    user: UUID | None


class Approved(Frozen):
    """An approval that went stale: what was approved, by whom and when."""

    artifact: BlobRef | None
    by: Actor
    answered_at: Instant


class Seat(Frozen):
    """Who may vote under a role, frozen when the decision was seated."""

    role: str
    voters: tuple[UUID, ...]


class Vote(Frozen):
    by: Actor
    on_behalf_of: UserRef | None = None
    outcome: DecisionOutcome
    voted_at: Instant


@event("decision.opened")
class DecisionOpened(Event):
    """`kind` tells a step of the definition from the question how a failed step goes on.

    Past `due_at` it is reminded once; with `escalate_to` it is then given `due_seconds` more, and `escalate_to` may
    answer it from there on. `question` and `form`, a JSON Schema, ask for an answer object in place of a judgement.
    From `until` on the run goes on without an answer.
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
    until: Instant | None = None
    escalate_to: str | None = None
    escalate_binding: RoleBinding | None = None
    quorum: Quorum | None = None
    barred: tuple[Barred, ...] = ()
    question: str | None = None
    form: BlobRef | None = None
    previous: Approved | None = None


@event("decision.seated")
class DecisionSeated(Event):
    """Who may vote from here on. Again when somebody left and the votes that are needed could not come any more."""

    seats: tuple[Seat, ...]
    reason: Literal["opened", "escalated", "left"]


@event("decision.reassigned")
class DecisionReassigned(Event):
    """`to_user` may answer in the place of `from_user`; without one, beside those who may."""

    command_id: UUID
    by: Actor
    from_user: UUID | None
    to_user: UserRef
    reason: Annotated[str | None, Personal("by")]


@event("decision.revised")
class DecisionRevised(Event):
    """The artefact that is decided on became another one. Votes on the one before count no more."""

    command_id: UUID
    by: Actor
    on_behalf_of: UserRef | None
    comment: Annotated[str | None, Personal("by")]
    artifact: BlobRef
    revised: BlobRef
    wiped: int


@event("decision.voted")
class DecisionVoted(Event):
    """A vote that did not end it. `artifact` is what the voter was shown."""

    command_id: UUID
    outcome: DecisionOutcome
    by: Actor
    on_behalf_of: UserRef | None
    comment: Annotated[str | None, Personal("by")]
    artifact: BlobRef | None


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
    """The one answer. `command_id` lets the same command be answered alike again.

    `artifact` is what was opened with, `revised` what it was made of; `answer` is that of a question. `votes` are those
    that a quorum was reached by, the last one included.
    """

    command_id: UUID
    outcome: DecisionOutcome
    by: Actor
    comment: Annotated[str | None, Personal("by")]
    artifact: BlobRef | None
    revised: BlobRef | None
    on_behalf_of: UserRef | None = None
    answer: BlobRef | None = None
    votes: tuple[Vote, ...] = ()


@event("decision.withdrawn")
class DecisionWithdrawn(Event):
    reason: str


DecisionEvent = (
    DecisionOpened
    | DecisionSeated
    | DecisionReassigned
    | DecisionRevised
    | DecisionVoted
    | DecisionReminded
    | DecisionEscalated
    | DecisionAnswered
    | DecisionWithdrawn
)
