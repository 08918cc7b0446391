"""Facts of one webhook delivery. Written by ingest."""

from uuid import UUID

from contracts.base import BlobRef, Event, Frozen, JsonObject, Sha256
from contracts.registry import event


class StartedRun(Frozen):
    definition_id: str
    run_id: UUID


class SkippedTrigger(Frozen):
    """A definition whose trigger matched and that was not started, and why."""

    definition_id: str
    reason: str


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
    started: tuple[StartedRun, ...] = ()
    skipped: tuple[SkippedTrigger, ...] = ()


InboundEvent = InboundReceived | InboundRouted
