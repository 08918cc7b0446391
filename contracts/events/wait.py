"""Facts of one wait on an event. Born by the planner with the run's own fact, then written by ingest alone."""

from uuid import UUID

from contracts.base import Actor, BlobRef, Event, Instant, JsonObject
from contracts.registry import event


@event("wait.opened")
class WaitOpened(Event):
    """`since` is when the run was created; `consumed` are the events that it has taken or was started by."""

    run_id: UUID
    step: str
    round: int
    source: str
    match: JsonObject
    since: Instant
    consumed: tuple[UUID, ...]


@event("wait.looked_back")
class WaitLookedBack(Event):
    """None of the events that had come before was the one. From here on each new event looks for the wait."""


@event("wait.matched")
class WaitMatched(Event):
    """The wait has its event, once and for all. `by` is the person who delivered it by hand, where one did."""

    inbound_id: UUID
    external_id: str
    event: str
    keys: JsonObject
    payload: BlobRef
    by: Actor | None = None


@event("wait.closed")
class WaitClosed(Event):
    """Its run waits no more."""

    reason: str


WaitEvent = WaitOpened | WaitLookedBack | WaitMatched | WaitClosed
