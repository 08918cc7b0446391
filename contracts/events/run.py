"""Facts of a run. Written by the planner; a run's birth also by ingest, when an event starts it."""

from typing import Literal
from uuid import UUID

from contracts.base import BlobRef, Event, Frozen, Instant, JsonObject, Microdollars, Sha256
from contracts.registry import event
from minutebook.models.states import DecisionOutcome, FailureClass, RunOutcome, TriggerKind


class UserRef(Frozen):
    id: UUID
    email: str


class Trigger(Frozen):
    """What started a run. `key` is unique per (tenant group, definition); None for starts without one."""

    kind: TriggerKind
    key: str | None = None
    source: str | None = None
    inbound_id: UUID | None = None


class Feedback(Frozen):
    """Why a step runs again, as its next prompt tells it."""

    source_step: str
    kind: Literal["request_changes", "gate"]
    comment: str | None = None
    by: str | None = None
    previous: BlobRef | None = None
    revised: BlobRef | None = None
    review: BlobRef | None = None


@event("run.created")
class RunCreated(Event):
    definition_id: str
    hash: Sha256
    bundle: BlobRef
    context: JsonObject
    initiated_by: UserRef
    trigger: Trigger
    project_id: str | None = None


@event("run.started")
class RunStarted(Event):
    pass


@event("run.stage_entered")
class RunStageEntered(Event):
    stage: str


@event("run.step_queued")
class RunStepQueued(Event):
    """An agent step waits for a runner. `step` is `<parallel>.<branch>` for a branch."""

    step: str
    round: int
    attempt: int
    attempt_id: UUID


@event("run.step_waiting")
class RunStepWaiting(Event):
    """A decision was opened for the step."""

    step: str
    round: int
    decision_id: UUID
    artifact_step: str | None
    artifact: BlobRef | None


@event("run.step_writing")
class RunStepWriting(Event):
    """An effect was declared for the step, or declared before under the same key."""

    step: str
    round: int
    effect_id: UUID
    effect_key: str
    arm: int


@event("run.branches_entered")
class RunBranchesEntered(Event):
    """A parallel step began; its branches queue next."""

    step: str
    round: int


@event("run.step_succeeded")
class RunStepSucceeded(Event):
    step: str
    output: BlobRef | None = None
    outcome: DecisionOutcome | None = None
    cost_microdollars: Microdollars = 0


@event("run.step_retrying")
class RunStepRetrying(Event):
    """An attempt failed and another begins at `not_before`."""

    step: str
    failure_class: FailureClass
    message: str
    attempt: int
    not_before: Instant
    cost_microdollars: Microdollars = 0


@event("run.step_failed")
class RunStepFailed(Event):
    step: str
    failure_class: FailureClass
    message: str
    outcome: DecisionOutcome | None = None
    cost_microdollars: Microdollars = 0


@event("run.artifact_approved")
class RunArtifactApproved(Event):
    """A step's proposed artefact was approved; `artifact` is the revision when there was one."""

    step: str
    decision_step: str
    artifact: BlobRef
    revised: bool


@event("run.artifact_executed")
class RunArtifactExecuted(Event):
    step: str
    effect_id: UUID


@event("run.looped")
class RunLooped(Event):
    """The steps from `to_step` to `from_step` begin a new round. `count` is how often `from_step` has looped."""

    from_step: str
    to_step: str
    reset: tuple[str, ...]
    count: int
    reason: Literal["gate", "request_changes"]
    feedback: Feedback


@event("run.parked")
class RunParked(Event):
    on: Literal["decision", "event", "timer"]


@event("run.unparked")
class RunUnparked(Event):
    pass


@event("run.suspended")
class RunSuspended(Event):
    reason: str
    failure_class: FailureClass | None = None
    step: str | None = None


@event("run.resumed")
class RunResumed(Event):
    pass


@event("run.completed")
class RunCompleted(Event):
    outcome: RunOutcome


@event("run.failed")
class RunFailed(Event):
    failure_class: FailureClass
    reason: str
    step: str | None = None


@event("run.cancelled")
class RunCancelled(Event):
    reason: str


RunEvent = (
    RunCreated
    | RunStarted
    | RunStageEntered
    | RunStepQueued
    | RunStepWaiting
    | RunStepWriting
    | RunBranchesEntered
    | RunStepSucceeded
    | RunStepRetrying
    | RunStepFailed
    | RunArtifactApproved
    | RunArtifactExecuted
    | RunLooped
    | RunParked
    | RunUnparked
    | RunSuspended
    | RunResumed
    | RunCompleted
    | RunFailed
    | RunCancelled
)
