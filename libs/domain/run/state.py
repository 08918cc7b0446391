"""The state of a run, as its facts add up to it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from contracts.base import BlobRef, Event, JsonObject
from contracts.events import run as e
from libs.domain.core import Category, no_run
from libs.domain.lifecycle import RUN, terminal
from minutebook.models.states import ArtifactState, DecisionOutcome, FailureClass, StepState

WATCHDOG: Final = timedelta(seconds=60)
"""A running run is looked at this often at the latest, in case every message about it was lost."""


SEARCH_TERMS_MAX: Final = 20
SEARCH_TERM_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What happened to one step or branch so far.

    `round` counts from 1 and grows when a loop or a reviewer sends the run back over the step; `attempt` counts
    within the round, `attempts` over all rounds. `open_id` is the attempt, decision or effect that stands for the
    step now or stood for it last. `since` is when the step began in this round, or when a person had it tried once
    more; later attempts do not move it. `output` is the artefact that counts: as approved where it was decided on.
    """

    status: StepState = "pending"
    round: int = 1
    attempt: int = 0
    attempts: int = 0
    arm: int = 0
    loops: int = 0
    open_id: UUID | None = None
    since: datetime | None = None
    proposed: BlobRef | None = None
    output: BlobRef | None = None
    artifact_state: ArtifactState | None = None
    shown: BlobRef | None = None
    shown_step: str | None = None
    outcome: DecisionOutcome | None = None
    failure_class: FailureClass | None = None
    message: str | None = None
    not_before: datetime | None = None
    feedback: e.Feedback | None = None
    cost_microdollars: int = 0


NEW_STEP: Final = StepRecord()


@dataclass(frozen=True, slots=True)
class State:
    """A run. `steps` holds the steps that were reached, in the order in which they were."""

    status: str = "absent"
    definition_id: str = ""
    hash: str = ""
    bundle: BlobRef | None = None
    context: JsonObject = field(default_factory=dict)
    initiated_by: e.UserRef | None = None
    trigger: e.Trigger | None = None
    project_id: str | None = None
    variant: str | None = None
    parent: UUID | None = None
    created_at: datetime | None = None
    finished_at: datetime | None = None
    stage: str | None = None
    steps: Mapping[str, StepRecord] = field(default_factory=dict)
    outcome: str | None = None
    reason: str | None = None
    failure_class: FailureClass | None = None
    worked: timedelta = timedelta(0)
    working_since: datetime | None = None

    def step(self, key: str) -> StepRecord:
        """The record of a step, also of one that was not reached yet."""
        return self.steps.get(key, NEW_STEP)

    @property
    def cost_microdollars(self) -> int:
        return sum(record.cost_microdollars for record in self.steps.values())

    def working_time(self, now: datetime) -> timedelta:
        """How long the run has worked; time parked on a person, event or timer does not count."""
        return self.worked + (now - self.working_since if self.working_since else timedelta(0))


def evolve(state: State, event: Event) -> State:
    """The state after one more fact."""
    match event:
        case e.RunCreated():
            return replace(
                state,
                status="created",
                definition_id=event.definition_id,
                hash=event.hash,
                bundle=event.bundle,
                context=event.context,
                initiated_by=event.initiated_by,
                trigger=event.trigger,
                project_id=event.project_id,
                variant=event.variant,
                parent=event.parent,
                created_at=event.at,
            )
        case e.RunStarted() | e.RunUnparked():
            return replace(state, status="running", working_since=event.at)
        case e.RunStageEntered():
            return replace(state, stage=event.stage)
        case e.RunParked():
            return replace(_paused(state, event.at), status=f"waiting_{event.on}")
        case e.RunSuspended():
            return replace(
                _paused(state, event.at), status="suspended", reason=event.reason, failure_class=event.failure_class
            )
        case e.RunResumed():
            # A person who lets the run go on grants it the whole of its working time again.
            return replace(
                state,
                status="running",
                reason=None,
                failure_class=None,
                finished_at=None,
                worked=timedelta(0),
                working_since=event.at,
            )
        case e.RunCompleted():
            return replace(_ended(state, event.at), status="completed", outcome=event.outcome)
        case e.RunFailed():
            return replace(
                _ended(state, event.at), status="failed", reason=event.reason, failure_class=event.failure_class
            )
        case e.RunCancelled():
            return replace(_ended(_cancel_open(state), event.at), status="cancelled", reason=event.reason)
        case e.RunLooped():
            return _looped(state, event)
        case _:
            return _evolve_step(state, event)


def _evolve_step(state: State, event: Event) -> State:
    match event:
        case e.RunStepQueued(step=key):
            return _with(
                state,
                key,
                status="queued",
                open_id=event.attempt_id,
                since=_since(state.step(key), event.at),
                attempt=event.attempt,
                attempts=state.step(key).attempts + 1,
                not_before=None,
            )
        case e.RunBranchesEntered(step=key):
            return _with(state, key, status="queued", since=event.at)
        case e.RunStepWaiting(step=key):
            return _with(
                state,
                key,
                status="waiting",
                open_id=event.decision_id,
                since=event.at,
                shown=event.artifact,
                shown_step=event.artifact_step,
                attempts=state.step(key).attempts + 1,
            )
        case e.RunStepWriting(step=key):
            return _with(
                state,
                key,
                status="writing",
                open_id=event.effect_id,
                since=_since(state.step(key), event.at),
                arm=event.arm,
                attempt=state.step(key).attempt + 1,
                attempts=state.step(key).attempts + 1,
                not_before=None,
            )
        case e.RunStepSucceeded(step=key):
            record = state.step(key)
            return _with(
                state,
                key,
                status="succeeded",
                outcome=event.outcome,
                output=event.output,
                proposed=event.output,
                artifact_state="proposed" if event.output else None,
                failure_class=None,
                message=None,
                cost_microdollars=record.cost_microdollars + event.cost_microdollars,
            )
        case e.RunStepRetrying(step=key):
            return _with(
                state,
                key,
                status="retrying",
                failure_class=event.failure_class,
                message=event.message,
                not_before=event.not_before,
                cost_microdollars=state.step(key).cost_microdollars + event.cost_microdollars,
            )
        case e.RunStepFailed(step=key):
            return _with(
                state,
                key,
                status="failed",
                outcome=event.outcome,
                failure_class=event.failure_class,
                message=event.message,
                cost_microdollars=state.step(key).cost_microdollars + event.cost_microdollars,
            )
        case e.RunArtifactApproved(step=key):
            return _with(state, key, output=event.artifact, artifact_state="approved")
        case e.RunArtifactExecuted(step=key):
            return _with(state, key, artifact_state="executed")
        case _:
            return state


def _with(state: State, key: str, **changes: Any) -> State:
    return replace(state, steps={**state.steps, key: replace(state.step(key), **changes)})


def _since(record: StepRecord, at: datetime) -> datetime:
    going_on = record.status in {"queued", "writing", "retrying"}
    return record.since if going_on and record.since is not None else at


def _paused(state: State, at: datetime) -> State:
    return replace(state, worked=state.working_time(at), working_since=None)


def _ended(state: State, at: datetime) -> State:
    return replace(_paused(state, at), finished_at=at)


def _cancel_open(state: State) -> State:
    open_ = {"queued", "waiting", "writing", "retrying"}
    return replace(
        state,
        steps={k: replace(r, status="cancelled") if r.status in open_ else r for k, r in state.steps.items()},
    )


def _looped(state: State, event: e.RunLooped) -> State:
    steps = dict(state.steps)
    for key in event.reset:
        record = steps.get(key)
        if record is not None:
            steps[key] = replace(
                record, status="pending", round=record.round + 1, attempt=0, arm=0, open_id=None, outcome=None
            )
    for key in event.reset:
        if key == event.to_step or key.startswith(f"{event.to_step}."):
            steps[key] = replace(steps.get(key, NEW_STEP), feedback=event.feedback)
    steps[event.from_step] = replace(steps.get(event.from_step, NEW_STEP), loops=event.count)
    return replace(state, steps=steps)


def search_terms(context: JsonObject) -> list[str]:
    """What a run is found by: `key=value` of the plain values at the top of its context, the first few of them."""
    terms = [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in context.items()
        if isinstance(value, str | int | float | bool)
    ]
    return sorted(term for term in terms if len(term) <= SEARCH_TERM_CHARS_MAX)[:SEARCH_TERMS_MAX]


def _columns(state: State) -> Mapping[str, Any]:
    return {
        "definition_id": state.definition_id,
        "hash": state.hash,
        "initiator": state.initiated_by.id if state.initiated_by else None,
        "project_id": state.project_id,
        "stage": state.stage,
        "outcome": state.outcome,
        "reason": state.reason,
        "created_at": state.created_at,
        "finished_at": state.finished_at,
        "cost_microdollars": state.cost_microdollars,
        "variant": state.variant,
        "parent": state.parent,
        "search": search_terms(state.context),
    }


def _wake_at(state: State, now: datetime) -> datetime | None:
    if state.status not in {"created", "running"}:
        return None
    retries = [r.not_before for r in state.steps.values() if r.status == "retrying" and r.not_before]
    return min([now + WATCHDOG, *retries])


CATEGORY: Final[Category[State]] = Category(
    name="run",
    initial=State(),
    evolve=evolve,
    status=lambda state: state.status,
    columns=_columns,
    wake_at=_wake_at,
    run_id=no_run,
    terminal=terminal(RUN),
)
