"""What a run waits for: a person, an event, a moment, or its turn."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import AwareDatetime, Field

from minutebook.models.base import JsonObject, Shown
from minutebook.models.states import DecisionOutcome


class WaitingForDecision(Shown):
    """An open decision."""

    kind: Literal["decision"] = "decision"
    step: str
    decision_id: UUID
    title: str
    role: str
    outcomes: tuple[DecisionOutcome, ...]
    opened_at: AwareDatetime
    due_at: AwareDatetime | None = None
    until: AwareDatetime | None = Field(default=None, description="when it times out")
    question: str | None = None
    approvals: int = Field(default=0, description="how many have approved what is shown")
    needed: int = Field(default=1, description="how many approvals it takes in all")
    escalation: bool = Field(default=False, description="whether it asks how a failed step goes on")
    may_answer: bool = Field(description="whether the caller may answer or vote now")


class WaitingForPerson(Shown):
    """A manual step that somebody is to complete with an artefact."""

    kind: Literal["manual"] = "manual"
    step: str
    role: str | None = Field(description="whose holders may complete it; null: the run's initiator")
    opened_at: AwareDatetime
    until: AwareDatetime | None = Field(description="when the step fails as `timeout`")
    may_complete: bool = Field(description="whether the caller may")


class WaitingForEvent(Shown):
    """An event step whose event has not come."""

    kind: Literal["event"] = "event"
    step: str
    wait_id: UUID
    source: str
    match: JsonObject = Field(description="what the event must carry; what named the context holds its values")
    opened_at: AwareDatetime
    until: AwareDatetime | None = Field(description="when the step fails as `timeout`")


class WaitingForTime(Shown):
    """A step that begins, or is tried again, at a known moment."""

    kind: Literal["timer"] = "timer"
    step: str
    until: AwareDatetime


class WaitingForTurn(Shown):
    """A run that others with the same concurrency key hold up."""

    kind: Literal["turn"] = "turn"
    key: str
    limit: int = Field(description="runs that may work under the key at a time")
    held_by: tuple[UUID, ...] = Field(description="the runs that work under the key now")
    ahead: int = Field(description="runs that wait before this one")


WaitingFor = Annotated[
    WaitingForDecision | WaitingForPerson | WaitingForEvent | WaitingForTime | WaitingForTurn,
    Field(discriminator="kind"),
]
