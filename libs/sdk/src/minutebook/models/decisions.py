"""Decisions as the API shows them, and what an answer says."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import AwareDatetime, ConfigDict, Field, JsonValue

from minutebook.models.base import ActorView, JsonObject, Person, Sent, Shown
from minutebook.models.runs import RunSummary
from minutebook.models.states import DecisionOutcome, DecisionState


class DecideRequest(Sent):
    """An answer. The outcome stands in the path, and who answers is who asks."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"comment": "Name the error message that the customer sees."}]}
    )

    comment: str | None = Field(default=None, max_length=20_000)
    revised_artifact: JsonValue = Field(
        default=None,
        description="replaces the artefact on approval, and is shown to the next round with a request for changes; "
        "must fit the step's output schema",
    )
    answer: JsonValue = Field(default=None, description="the answer to a question; must fit its `form`")
    shown: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="`shown_digest` of what you looked at: refused as `decision.stale` when it has become another one",
    )


class ReassignRequest(Sent):
    """Who is to answer, and in whose place; each by email or id."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"to_user": "lena@example.com", "from_user": "priya@example.com"}]}
    )

    to_user: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")
    from_user: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00]*$",
        description="who may not answer any more; null puts the other one beside those who may",
    )
    reason: str | None = Field(default=None, max_length=2_000)


class DelegateRequest(Sent):
    """Whom to let decide in one's place, and until when; each by email or id."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"to_user": "lena@example.com", "ends_at": "2030-01-07T00:00:00Z"}]}
    )

    to_user: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")
    from_user: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00]*$",
        description="in whose place; null is the caller, and others are for administrators",
    )
    starts_at: AwareDatetime | None = Field(default=None, description="null is now")
    ends_at: AwareDatetime
    roles: tuple[Annotated[str, Field(min_length=1, max_length=64)], ...] = Field(
        default=(),
        max_length=50,
        description="workflow roles that it is limited to; none: whatever the person may decide",
    )


class DelegationView(Shown):
    """One person lets another decide in their place."""

    delegation_id: UUID
    from_user: Person
    to_user: Person
    starts_at: AwareDatetime
    ends_at: AwareDatetime
    roles: tuple[str, ...] = Field(description="workflow roles that it is limited to; empty: no limit")
    state: Literal["coming", "in_force", "over", "ended"]
    by: ActorView = Field(description="who gave it: the person, or an administrator")


class DecisionAnswerView(Shown):
    outcome: DecisionOutcome
    by: ActorView
    at: AwareDatetime
    comment: str | None = None
    revised: bool = Field(default=False, description="whether what was decided on was a revision")
    on_behalf_of: Person | None = Field(default=None, description="the person in whose place it was given")
    value: JsonValue = Field(default=None, description="the answer to a question")


class VoteView(Shown):
    """A vote that counts: given to what is shown now."""

    outcome: DecisionOutcome
    by: ActorView
    on_behalf_of: Person | None = None
    at: AwareDatetime
    comment: str | None = None


class SeatView(Shown):
    """Who may vote under a role."""

    role: str
    need: int | None = Field(description="how many of them must approve; null asks for none of them in particular")
    missing: int = Field(description="how many approvals of theirs are still needed")
    voters: tuple[Person, ...] = Field(description="as they were named, whether they voted, may not, or left since")
    may_answer: tuple[Person, ...] = Field(default=(), description="those of them whose vote would be taken now")


class QuorumView(Shown):
    """How many approvals it takes, and how many are still missing in all."""

    need: int
    missing: int
    distinct: bool = Field(description="whether a person votes once, however many they may vote for")
    veto: Literal["any", "none"] = Field(description="whether the first answer that is no approval ends it")
    seats: tuple[SeatView, ...] = Field(description="empty until the voters are named")


class ApprovedView(Shown):
    """An approval that is good no more, since when it is asked for again."""

    artifact: JsonValue = None
    by: ActorView
    at: AwareDatetime


class ArtifactChange(Shown):
    """A value that differs, by its dotted path."""

    path: str
    kind: Literal["added", "removed", "changed"]
    before: JsonValue = None
    after: JsonValue = None


class DecisionSummary(Shown):
    """A decision without its artefact."""

    decision_id: UUID
    run_id: UUID
    definition_id: str
    project_id: str | None
    step: str
    title: str
    round: int = Field(description="counts from 1; a redone step is decided on again")
    role: str = Field(description="the workflow role whose holders may answer")
    outcomes: tuple[DecisionOutcome, ...]
    state: DecisionState
    opened_at: AwareDatetime
    kind: Literal["decision", "escalation"] = Field(
        default="decision", description="an escalation asks how a failed step goes on"
    )
    due_at: AwareDatetime | None = Field(default=None, description="when it is reminded, or passed on to another role")
    escalated_to: str | None = Field(default=None, description="the role that may answer it, too, since it was due")
    until: AwareDatetime | None = Field(default=None, description="when it times out, and the run goes on without it")
    question: str | None = Field(default=None, description="what is asked, where it is no judgement on an artefact")
    approvals: int = Field(default=0, description="how many have approved what is shown")
    needed: int = Field(default=1, description="how many approvals it takes in all")
    artifact_step: str | None = Field(description="the step whose artefact is decided on")
    may_answer: bool = Field(
        description="whether it is open and the caller may answer or vote now, for themself or in another one's place"
    )


class DecisionView(DecisionSummary):
    """A decision with what is decided on, and the answer when there is one."""

    initiated_by: Person
    artifact: JsonValue = Field(default=None, description="what it was opened with, exactly")
    artifact_digest: str | None = Field(default=None, description="SHA-256 of the artefact's canonical JSON")
    revised_artifact: JsonValue = Field(default=None, description="what that was made of, which is decided on then")
    shown_digest: str | None = Field(
        default=None, description="SHA-256 of what is decided on now; send it as `shown` with the answer"
    )
    form: JsonValue = Field(default=None, description="JSON Schema that the answer to a question must fit")
    not_for: tuple[str, ...] = Field(
        default=(), description="who may not answer: `initiator`, `reviser`, or who decided an earlier step"
    )
    quorum: QuorumView | None = None
    votes: tuple[VoteView, ...] = ()
    previous: ApprovedView | None = Field(
        default=None, description="the approval that is asked for again, since it was good until a moment that passed"
    )
    differences: tuple[ArtifactChange, ...] = Field(
        default=(), description="between what was approved before, or proposed, and what is decided on now"
    )
    answer: DecisionAnswerView | None = None
    withdrawn_because: str | None = None


class DecisionAccepted(Shown):
    """The answer or the vote was recorded. A vote that did not end it leaves the decision `open`."""

    decision_id: UUID
    run_id: UUID
    outcome: DecisionOutcome
    revised: bool
    state: DecisionState = "answered"
    approvals: int = Field(default=1, description="how many have approved what is shown")
    needed: int = Field(default=1, description="how many approvals it takes in all")


class InboxItem(Shown):
    """A decision that the caller may answer, with the run that waits for it."""

    decision: DecisionSummary
    run: RunSummary


class TaskItem(Shown):
    """A manual step that the caller may complete, with the run that waits for it."""

    step: str
    title: str
    role: str | None = Field(description="the workflow role whose holders may complete it; none: the run's initiator")
    opened_at: AwareDatetime
    until: AwareDatetime | None = Field(description="when it times out")
    output_schema: JsonObject | None = Field(description="JSON Schema that the artefact must fit; none: any object")
    run: RunSummary
