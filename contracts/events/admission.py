"""Facts of one concurrency key of one definition: who works under it, who waits. Written by the scheduler."""

from typing import Literal
from uuid import UUID

from contracts.base import Event
from contracts.registry import event


@event("admission.granted")
class AdmissionGranted(Event):
    """The run may start: it is one of at most `limit` under the key."""

    run_id: UUID
    definition_id: str
    key: str
    limit: int


@event("admission.queued")
class AdmissionQueued(Event):
    """The key is taken; the run waits for its turn, first come first served."""

    run_id: UUID
    definition_id: str
    key: str
    limit: int
    mode: Literal["queue", "coalesce"]


@event("admission.superseded")
class AdmissionSuperseded(Event):
    """A newer start took the waiting run's place."""

    run_id: UUID
    by: UUID


@event("admission.refused")
class AdmissionRefused(Event):
    """As many runs wait under the key as may."""

    run_id: UUID
    reason: str


@event("admission.returned")
class AdmissionReturned(Event):
    """The run holds or wants the key no more."""

    run_id: UUID


AdmissionEvent = AdmissionGranted | AdmissionQueued | AdmissionSuperseded | AdmissionRefused | AdmissionReturned
