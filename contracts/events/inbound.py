"""Facts of one webhook delivery. Written by ingest."""

from uuid import UUID

from contracts.base import Actor, BlobRef, Event, Frozen, JsonObject, Sha256
from contracts.registry import event


class StartedRun(Frozen):
    definition_id: str
    run_id: UUID


class SkippedTrigger(Frozen):
    """A definition whose trigger matched and that was not started, and why."""

    definition_id: str
    reason: str


class ResumedRun(Frozen):
    """A run whose open wait took the event."""

    run_id: UUID
    step: str
    wait_id: UUID


@event("inbound.received")
class InboundReceived(Event):
    source: str
    external_id: str
    event: str
    keys: JsonObject
    payload: BlobRef
    body_sha256: Sha256


@event("inbound.routed")
class InboundRouted(Event):
    """What followed from the event when it came. `unmatched` says why nothing did."""

    started: tuple[StartedRun, ...] = ()
    skipped: tuple[SkippedTrigger, ...] = ()
    resumed: tuple[ResumedRun, ...] = ()
    unmatched: str | None = None


@event("inbound.replayed")
class InboundReplayed(Event):
    """A person had it routed again, by what is declared and waits now."""

    by: Actor
    command_id: UUID
    started: tuple[StartedRun, ...] = ()
    skipped: tuple[SkippedTrigger, ...] = ()
    resumed: tuple[ResumedRun, ...] = ()
    unmatched: str | None = None


@event("inbound.delivered")
class InboundDelivered(Event):
    """A person handed it to a wait, whatever the wait asks for."""

    by: Actor
    command_id: UUID
    run_id: UUID
    step: str
    wait_id: UUID


@event("inbound.body_differed")
class InboundBodyDiffered(Event):
    """Another delivery under the same external id had another body. It changes nothing."""

    body_sha256: Sha256


InboundEvent = InboundReceived | InboundRouted | InboundReplayed | InboundDelivered | InboundBodyDiffered
