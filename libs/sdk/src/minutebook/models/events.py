"""Inbound events as the API shows them, and what people do with them."""

from typing import Literal
from uuid import UUID

from pydantic import AwareDatetime, ConfigDict, Field, JsonValue

from minutebook.models.base import ActorView, JsonObject, Sent, Shown
from minutebook.models.states import InboundState


class EventSummary(Shown):
    """A delivery of an event source."""

    event_id: UUID
    source: str
    event: str
    external_id: str = Field(description="unique in its source")
    state: InboundState = Field(description="`received` until it was routed")
    received_at: AwareDatetime
    unmatched: str | None = Field(description="why nothing followed from it, when nothing ever did")
    taken_by: tuple[UUID, ...] = Field(default=(), description="runs whose waiting step took it, then or later")


class EventStarted(Shown):
    definition_id: str
    run_id: UUID


class EventResumed(Shown):
    """A run whose step waited for it."""

    run_id: UUID
    step: str


class EventSkipped(Shown):
    """A definition that asked for it and was not started."""

    definition_id: str
    reason: str


class EventFollowed(Shown):
    """What followed from an event."""

    started: tuple[EventStarted, ...] = ()
    resumed: tuple[EventResumed, ...] = ()
    skipped: tuple[EventSkipped, ...] = ()
    unmatched: str | None = Field(default=None, description="why nothing followed")


class EventRouting(EventFollowed):
    """One time that an event was handed to those who asked for it."""

    how: Literal["routed", "replayed", "delivered"] = Field(
        description="as it came; again, because somebody wished it; or by hand, to one waiting step"
    )
    at: AwareDatetime
    by: ActorView | None = Field(default=None, description="who wished it")


class EventView(EventSummary):
    """An inbound event with what it carried and what followed, oldest first."""

    keys: JsonObject = Field(description="what triggers and waiting steps compare")
    payload: JsonValue = None
    body_sha256: str
    bodies_differed: int = Field(description="deliveries under the same id with another body; they changed nothing")
    routings: tuple[EventRouting, ...]


class EventRouted(EventFollowed):
    """What followed this time."""

    event_id: UUID


class DeliverRequest(Sent):
    """The waiting step that is to take an event."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"run_id": "0193a1f2-7c1e-7d7a-9a51-3f0b8d0c7a11", "step": "signature"}]}
    )

    run_id: UUID
    step: str = Field(max_length=200)
