"""Facts of one write to the outside. Born by the planner, then written by the effects service alone.

A back-link is an effect of its own, born with the success of the write that it links from.
"""

from typing import Annotated, Literal
from uuid import UUID

from contracts.base import Actor, BlobRef, Event, Instant
from contracts.events.run import UserRef
from contracts.personal import Personal
from contracts.registry import event
from minutebook.models.states import FailureClass, SettleVerdict


@event("effect.declared")
class EffectDeclared(Event):
    """`of` is the write that a back-link belongs to. Past `valid_until` the approval is stale and nothing is sent."""

    run_id: UUID
    step: str
    key: str
    system: str
    tool: str
    arguments: BlobRef
    owner: UserRef
    kind: Literal["write", "back_link"] = "write"
    of: UUID | None = None
    valid_until: Instant | None = None


@event("effect.pending")
class EffectPending(Event):
    """Committed before the call. The call carries `claim`'s verdict or none.

    From `over_at` on it cannot be under way anywhere, not even in a process that was frozen.
    """

    claim: UUID
    arm: int
    over_at: Instant


@event("effect.succeeded")
class EffectSucceeded(Event):
    claim: UUID
    reference: str | None
    response: BlobRef


@event("effect.failed")
class EffectFailed(Event):
    """Surely not written. `response` is what the tool answered, when it answered.

    `expired` says that the approval had gone stale before anything was sent.
    """

    claim: UUID | None
    failure_class: FailureClass
    message: str
    response: BlobRef | None = None
    expired: bool = False


@event("effect.in_doubt")
class EffectInDoubt(Event):
    """May have been written and cannot be known from here.

    Without a claim no call was announced: the record was restored to an older point, and a later one may have made it.
    """

    claim: UUID | None
    reason: str


@event("effect.probed")
class EffectProbed(Event):
    """The target was asked whether the write is there, and what it said settles nothing. `tries` counts from 1."""

    result: Literal["absent", "ambiguous", "unreachable"]
    message: str
    tries: int


@event("effect.settled")
class EffectSettled(Event):
    """A verdict on an effect in doubt, by a person or by the target's own word. `try_again` arms it again as `arm`."""

    command_id: UUID | None
    verdict: SettleVerdict
    source: Literal["operator", "probe"]
    by: Actor
    reference: str | None
    comment: Annotated[str | None, Personal("by")]
    response: BlobRef | None
    arm: int


@event("effect.rearmed")
class EffectRearmed(Event):
    """A failed effect may be tried again; `arm` counts from 1. Past `valid_until` nothing is sent, as when declared."""

    arm: int
    valid_until: Instant | None = None


@event("effect.cancelled")
class EffectCancelled(Event):
    reason: str


EffectEvent = (
    EffectDeclared
    | EffectPending
    | EffectSucceeded
    | EffectFailed
    | EffectInDoubt
    | EffectProbed
    | EffectSettled
    | EffectRearmed
    | EffectCancelled
)
