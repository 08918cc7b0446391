"""Facts of a run. Written by the planner; a run's birth also by ingest, when an event starts it."""

from typing import Annotated, Literal
from uuid import UUID

from contracts.base import Actor, BlobRef, Event, Frozen, Instant, JsonObject, Microdollars, Sha256
from contracts.personal import ERASED_EMAIL, Personal
from contracts.registry import event
from minutebook.models.states import ArtifactState, DecisionOutcome, FailureClass, RunOutcome, TriggerKind


class UserRef(Frozen):
    id: UUID
    email: Annotated[str, Personal("id", erased=ERASED_EMAIL)]


class RoleBinding(Frozen):
    """What a workflow role resolves to: a holder has one of the platform roles, is in one of the groups, or, where
    `project` is set, is a member of the run's project.
    """

    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    project: bool = False


class Trigger(Frozen):
    """What started a run. `key` is unique per (tenant group, definition); None for starts without one.

    `slot` is the local time of a schedule's slot, as its schedule writes it.
    """

    kind: TriggerKind
    key: str | None = None
    source: str | None = None
    inbound_id: UUID | None = None
    schedule_id: UUID | None = None
    slot: str | None = None


class Remark(Frozen):
    """What one person said, under the key of that person."""

    comment: Annotated[str, Personal("by_id")]
    by: Annotated[str, Personal("by_id")]
    by_id: UUID | None


class Feedback(Frozen):
    """Why a step runs again, as its next prompt tells it. `by_id` is the person whose words they are, where one's.

    `others` are the remarks of those who asked for the same before that person did.
    """

    source_step: str
    kind: Literal["request_changes", "gate", "timeout"]
    comment: Annotated[str | None, Personal("by_id")] = None
    by: Annotated[str | None, Personal("by_id")] = None
    by_id: UUID | None = None
    previous: BlobRef | None = None
    revised: BlobRef | None = None
    review: BlobRef | None = None
    others: tuple[Remark, ...] = ()


@event("run.created")
class RunCreated(Event):
    """`parent` is the run that this one restarts or was forked from."""

    definition_id: str
    hash: Sha256
    bundle: BlobRef
    context: JsonObject
    initiated_by: UserRef
    trigger: Trigger
    project_id: str | None = None
    variant: str | None = None
    parent: UUID | None = None


@event("run.forked")
class RunForked(Event):
    """The run goes on from a point of its parent's history, version `at_version`. `effects` are the parent's writes
    that were made or may have been, by effect key: a write of this run under such a key takes over what became of it.
    """

    parent: UUID
    at_version: int
    effects: dict[str, UUID]


@event("run.step_inherited")
class RunStepInherited(Event):
    """A step that the parent of a fork had finished. It does not run again.

    `by` decided or completed it there, last; `deciders` are all who did, and whom they did it for. `revisers` are all
    who revised its artefact, who laid another one over it for the fork among them.
    """

    step: str
    output: BlobRef | None
    artifact_state: ArtifactState | None
    outcome: DecisionOutcome | None
    by: Actor | None = None
    deciders: tuple[UUID, ...] = ()
    revisers: tuple[UUID, ...] = ()


@event("run.admission_requested")
class RunAdmissionRequested(Event):
    """The run waits for its concurrency key. `working` says that it works already: a failed run that goes on."""

    admission_id: UUID
    key: str
    limit: int
    mode: Literal["queue", "coalesce"]
    max_queued: int
    working: bool = False


@event("run.held")
class RunHeld(Event):
    """Others hold the concurrency key; the run starts when it is its turn."""

    admission_id: UUID
    key: str


@event("run.admission_returned")
class RunAdmissionReturned(Event):
    """The run has ended: its place goes to the next."""

    admission_id: UUID


@event("run.superseded")
class RunSuperseded(Event):
    """A newer start took its place before it began."""

    by: UUID


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
    """A decision was opened for the step. `until` is its timeout."""

    step: str
    round: int
    decision_id: UUID
    artifact_step: str | None
    artifact: BlobRef | None
    until: Instant | None = None


@event("run.step_delayed")
class RunStepDelayed(Event):
    """The step begins at `until`, as its `wait` says."""

    step: str
    round: int
    until: Instant


@event("run.event_awaited")
class RunEventAwaited(Event):
    """An event step waits. `match` is resolved: what named the context holds its values. `until` is its timeout."""

    step: str
    round: int
    wait_id: UUID
    source: str
    match: JsonObject
    until: Instant | None


@event("run.event_taken")
class RunEventTaken(Event):
    """The wait has its event. A run takes an event once."""

    step: str
    wait_id: UUID
    inbound_id: UUID


@event("run.manual_opened")
class RunManualOpened(Event):
    """A person of the role is to complete the step with an artefact. Without a role its initiator may."""

    step: str
    round: int
    role: str | None
    binding: RoleBinding | None
    until: Instant | None


@event("run.manual_completed")
class RunManualCompleted(Event):
    """`command_id` lets the same command be answered alike again."""

    step: str
    command_id: UUID
    by: Actor
    artifact: BlobRef
    comment: Annotated[str | None, Personal("by")]


@event("run.step_escalated")
class RunStepEscalated(Event):
    """The step failed, and a decision was opened about how to go on."""

    step: str
    round: int
    failure_class: FailureClass
    message: str
    decision_id: UUID
    role: str
    cost_microdollars: Microdollars = 0


@event("run.items_entered")
class RunItemsEntered(Event):
    """A step with `for_each` began; each of the list's items becomes `<step>.<index>`, from 0."""

    step: str
    round: int
    items: BlobRef
    count: int


@event("run.step_cancelled")
class RunStepCancelled(Event):
    """Nobody waits for this branch any more. `attempt_id` is the attempt that is to stop."""

    step: str
    attempt_id: UUID | None
    reason: str


@event("run.step_writing")
class RunStepWriting(Event):
    """An effect was declared for the step, or declared before under the same key.

    Past `valid_until` the approval that it rests on is stale, and nothing is sent.
    """

    step: str
    round: int
    effect_id: UUID
    effect_key: str
    arm: int
    valid_until: Instant | None = None


@event("run.branches_entered")
class RunBranchesEntered(Event):
    """A parallel step began; its branches queue next."""

    step: str
    round: int


@event("run.step_succeeded")
class RunStepSucceeded(Event):
    """`by` is the person who decided or completed it."""

    step: str
    output: BlobRef | None = None
    outcome: DecisionOutcome | None = None
    cost_microdollars: Microdollars = 0
    by: Actor | None = None


@event("run.step_skipped")
class RunStepSkipped(Event):
    """The step is passed over: it timed out and the run goes on elsewhere, or it stands before where that is."""

    step: str
    reason: str


@event("run.approval_expired")
class RunApprovalExpired(Event):
    """The approval of `step` had gone stale when `write` was to use it: it is asked for again."""

    step: str
    write: str
    approved_at: Instant
    valid_until: Instant


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
    """A step's proposed artefact was approved; `artifact` is the revision when there was one, by all `revisers`."""

    step: str
    decision_step: str
    artifact: BlobRef
    revised: bool
    revisers: tuple[UUID, ...] = ()


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
    reason: Literal["gate", "request_changes", "timeout"]
    feedback: Feedback


@event("run.parked")
class RunParked(Event):
    on: Literal["decision", "event", "timer"]


@event("run.unparked")
class RunUnparked(Event):
    pass


@event("run.suspended")
class RunSuspended(Event):
    """`effect_id` is the write in doubt for whose sake it stopped. Without `by` nobody asked for it."""

    reason: str
    failure_class: FailureClass | None = None
    step: str | None = None
    effect_id: UUID | None = None
    by: Actor | None = None


@event("run.resumed")
class RunResumed(Event):
    by: Actor | None = None


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
    """`by` is the person who cancelled it, where one did; so for `run.suspended` and `run.resumed`."""

    reason: str
    by: Actor | None = None


RunEvent = (
    RunCreated
    | RunForked
    | RunStepInherited
    | RunAdmissionRequested
    | RunHeld
    | RunAdmissionReturned
    | RunSuperseded
    | RunStarted
    | RunStageEntered
    | RunStepQueued
    | RunStepWaiting
    | RunStepDelayed
    | RunEventAwaited
    | RunEventTaken
    | RunManualOpened
    | RunManualCompleted
    | RunStepEscalated
    | RunItemsEntered
    | RunStepCancelled
    | RunStepWriting
    | RunBranchesEntered
    | RunStepSucceeded
    | RunStepSkipped
    | RunApprovalExpired
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
