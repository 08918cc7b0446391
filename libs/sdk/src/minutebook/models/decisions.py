"""Decisions as the API shows them, and what an answer says."""

from typing import Literal
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


class DecisionAnswerView(Shown):
    outcome: DecisionOutcome
    by: ActorView
    at: AwareDatetime
    comment: str | None = None
    revised: bool = Field(default=False, description="whether the answer carried a revised artefact")


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
    artifact_step: str | None = Field(description="the step whose artefact is decided on")
    may_answer: bool = Field(description="whether it is open and the caller holds the role")


class DecisionView(DecisionSummary):
    """A decision with what is decided on, and the answer when there is one."""

    initiated_by: Person
    artifact: JsonValue = Field(default=None, description="what was shown, exactly")
    artifact_digest: str | None = Field(default=None, description="SHA-256 of the artefact's canonical JSON")
    revised_artifact: JsonValue = None
    answer: DecisionAnswerView | None = None
    withdrawn_because: str | None = None


class DecisionAccepted(Shown):
    """The answer was recorded."""

    decision_id: UUID
    run_id: UUID
    outcome: DecisionOutcome
    revised: bool


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
