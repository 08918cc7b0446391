"""Facts of one write to the outside. Born by the planner, then written by the effects service alone."""

from uuid import UUID

from contracts.base import BlobRef, Event
from contracts.events.run import UserRef
from contracts.registry import event
from minutebook.models.states import FailureClass


@event("effect.declared")
class EffectDeclared(Event):
    run_id: UUID
    step: str
    key: str
    system: str
    tool: str
    arguments: BlobRef
    owner: UserRef


@event("effect.pending")
class EffectPending(Event):
    """Committed before the call. The call carries `claim`'s verdict or none."""

    claim: UUID
    arm: int


@event("effect.succeeded")
class EffectSucceeded(Event):
    claim: UUID
    reference: str | None
    response: BlobRef


@event("effect.failed")
class EffectFailed(Event):
    """Surely not written. `response` is what the tool answered, when it answered."""

    claim: UUID | None
    failure_class: FailureClass
    message: str
    response: BlobRef | None = None


@event("effect.in_doubt")
class EffectInDoubt(Event):
    """May have been written and cannot be known from here."""

    claim: UUID
    reason: str


@event("effect.rearmed")
class EffectRearmed(Event):
    """A failed effect may be tried again; `arm` counts from 1."""

    arm: int


@event("effect.cancelled")
class EffectCancelled(Event):
    reason: str


EffectEvent = (
    EffectDeclared | EffectPending | EffectSucceeded | EffectFailed | EffectInDoubt | EffectRearmed | EffectCancelled
)
