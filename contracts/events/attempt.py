"""Facts of one execution of one step. Born by the planner, then written by the runner alone."""

from uuid import UUID

from contracts.base import BlobRef, Event, Frozen, Microdollars
from contracts.registry import event
from minutebook.models.states import FailureClass


class Usage(Frozen):
    """Tokens as the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


@event("attempt.queued")
class AttemptQueued(Event):
    run_id: UUID
    step: str
    round: int
    number: int
    executor: str
    queue: str
    request: BlobRef


@event("attempt.started")
class AttemptStarted(Event):
    """The first report of a claim: from here on a report with another claim is refused."""

    claim: UUID
    runner: str


@event("attempt.lease_lost")
class AttemptLeaseLost(Event):
    """A claim's lease ended without a result; the attempt is ready again. `count` is how often."""

    claim: UUID
    count: int


@event("attempt.succeeded")
class AttemptSucceeded(Event):
    claim: UUID
    output: BlobRef
    usage: Usage
    cost_microdollars: Microdollars
    model: str | None
    turns: int


@event("attempt.failed")
class AttemptFailed(Event):
    claim: UUID | None
    failure_class: FailureClass
    message: str
    usage: Usage
    cost_microdollars: Microdollars
    model: str | None
    turns: int


@event("attempt.cancelled")
class AttemptCancelled(Event):
    reason: str


AttemptEvent = AttemptQueued | AttemptStarted | AttemptLeaseLost | AttemptSucceeded | AttemptFailed | AttemptCancelled
