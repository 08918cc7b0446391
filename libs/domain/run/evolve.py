"""Folding a run's facts, one at a time. Total: it judges nothing."""

from datetime import datetime, timedelta
from typing import Any

from contracts.base import Event
from contracts.events import run as e
from contracts.events.decision import Approved
from libs.domain.core import replace
from libs.domain.run.state import NEW_STEP, UNDER_WAY, State, StepRecord, WaitsOn


def evolve(state: State, event: Event) -> State:
    """The state after one more fact."""
    match event:
        case e.RunCreated():
            return _created(state, event)
        case e.RunStarted() | e.RunUnparked():
            return replace(state, status="running", started=True, held=False, working_since=event.at)
        case e.RunStageEntered():
            return replace(state, stage=event.stage)
        case e.RunParked():
            return replace(_paused(state, event.at), status=f"waiting_{event.on}")
        case e.RunSuspended():
            return replace(
                _paused(state, event.at),
                status="suspended",
                reason=event.reason,
                failure_class=event.failure_class,
                by=event.by,
                by_at=event.at,
                stopped_at=event.step,
            )
        case e.RunResumed():
            # A person who lets the run go on grants it the whole of its working time again.
            return replace(
                state,
                status="running",
                started=True,
                held=False,
                reason=None,
                failure_class=None,
                finished_at=None,
                worked=timedelta(0),
                working_since=event.at,
                by=event.by,
                by_at=event.at,
            )
        case e.RunCompleted():
            return replace(_ended(state, event.at), status="completed", outcome=event.outcome)
        case e.RunFailed():
            return replace(
                _ended(state, event.at),
                status="failed",
                reason=event.reason,
                failure_class=event.failure_class,
                stopped_at=event.step,
            )
        case e.RunCancelled():
            cancelled = _ended(_cancel_open(state), event.at)
            return replace(cancelled, status="cancelled", reason=event.reason, by=event.by, by_at=event.at)
        case e.RunSuperseded():
            superseded = _ended(state, event.at)
            return replace(superseded, status="superseded", superseded_by=event.by, admission=None, held=False)
        case e.RunAdmissionRequested():
            return replace(state, admission=event, held=False)
        case e.RunHeld():
            return replace(state, held=True)
        case e.RunAdmissionReturned():
            return replace(state, admission=None, held=False)
        case e.RunForked():
            return replace(state, inherited_effects=event.effects)
        case e.RunLooped():
            return _looped(state, event)
        case e.RunEventTaken():
            return replace(state, consumed=(*state.consumed, event.inbound_id))
        case _:
            return _evolve_step(state, event)


def _created(state: State, event: e.RunCreated) -> State:
    started_by = event.trigger.inbound_id
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
        consumed=() if started_by is None else (started_by,),
    )


def _evolve_step(state: State, event: Event) -> State:
    match event:
        case e.RunStepInherited(step=key):
            return _with(
                state,
                key,
                status="succeeded",
                output=event.output,
                proposed=event.output,
                artifact_state=event.artifact_state,
                outcome=event.outcome,
                by=event.by,
                deciders=event.deciders,
                revisers=event.revisers,
                succeeded_at=event.at,
            )
        case e.RunStepDelayed(step=key):
            return _with(state, key, status="delayed", not_before=event.until)
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
                waits_on=None,
            )
        case e.RunBranchesEntered(step=key):
            return _with(state, key, status="queued", open_id=None, waits_on=None, since=event.at)
        case e.RunItemsEntered(step=key):
            entered = {"items": event.items, "count": event.count}
            return _with(state, key, status="queued", open_id=None, waits_on=None, since=event.at, **entered)
        case e.RunStepWaiting(step=key):
            shown = {"shown": event.artifact, "shown_step": event.artifact_step}
            return _opened(state, event, "decision", open_id=event.decision_id, until=event.until, **shown)
        case e.RunEventAwaited():
            return _opened(state, event, "event", open_id=event.wait_id, until=event.until)
        case e.RunManualOpened():
            asked = {"role": event.role, "binding": event.binding}
            return _opened(state, event, "manual", open_id=None, until=event.until, **asked)
        case e.RunManualCompleted(step=key):
            return _with(state, key, completed_by=event.by, completed_at=event.at, command_id=event.command_id)
        case e.RunStepWriting(step=key):
            return _with(
                state,
                key,
                status="writing",
                open_id=event.effect_id,
                effect_id=event.effect_id,
                since=_since(state.step(key), event.at),
                arm=event.arm,
                valid_until=event.valid_until,
                attempt=state.step(key).attempt + 1,
                attempts=state.step(key).attempts + 1,
                not_before=None,
                waits_on=None,
            )
        case _:
            return _evolve_end_of_step(state, event)


def _evolve_end_of_step(state: State, event: Event) -> State:
    match event:
        case e.RunStepSucceeded(step=key):
            return _with(
                state,
                key,
                status="succeeded",
                outcome=event.outcome,
                output=event.output,
                proposed=event.output,
                artifact_state="proposed" if event.output else None,
                by=event.by,
                succeeded_at=event.at,
                revisers=(),
                revised_at=None,
                deciders=(),
                failure_class=None,
                message=None,
                cost_microdollars=state.step(key).cost_microdollars + event.cost_microdollars,
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
        case e.RunStepEscalated(step=key):
            return _with(
                state,
                key,
                status="waiting",
                waits_on="escalation",
                open_id=event.decision_id,
                until=None,
                escalations=state.step(key).escalations + 1,
                failure_class=event.failure_class,
                message=event.message,
                cost_microdollars=state.step(key).cost_microdollars + event.cost_microdollars,
            )
        case e.RunStepCancelled(step=key):
            return _with(state, key, status="cancelled", message=event.reason)
        case e.RunArtifactApproved():
            return _approved(state, event)
        case e.RunStepSkipped(step=key):
            return _with(state, key, status="skipped", message=event.reason)
        case e.RunApprovalExpired():
            return _expired(state, event)
        case e.RunArtifactExecuted(step=key):
            return _with(state, key, artifact_state="executed")
        case _:
            return state


def _approved(state: State, event: e.RunArtifactApproved) -> State:
    record = state.step(event.step)
    revised_at = event.decision_step if event.revised and not event.revisers else record.revised_at
    changes = {
        "output": event.artifact,
        "artifact_state": "approved",
        "revisers": tuple(dict.fromkeys((*record.revisers, *event.revisers))),
        "revised_at": revised_at,
    }
    return _with(_with(state, event.step, **changes), event.decision_step, approved=event.artifact)


def _expired(state: State, event: e.RunApprovalExpired) -> State:
    """The decision is asked anew, and the write begins once it is approved; one that was delayed is not again."""
    record, write = state.step(event.step), state.step(event.write)
    if record.status == "succeeded":
        expired = None
        if record.by is not None:
            expired = Approved(artifact=record.approved, by=record.by, answered_at=event.approved_at)
        state = _with(state, event.step, status="pending", outcome=None, until=None, expired=expired)
    if write.status == "delayed":
        return _with(state, event.write, not_before=None)
    return _with(state, event.write, status="pending", failure_class=None, message=None)


def _opened(
    state: State,
    event: e.RunStepWaiting | e.RunEventAwaited | e.RunManualOpened,
    waits_on: WaitsOn,
    **changes: Any,
) -> State:
    record = state.step(event.step)
    return _with(
        state,
        event.step,
        status="waiting",
        waits_on=waits_on,
        since=event.at,
        attempt=record.attempt + 1,
        attempts=record.attempts + 1,
        not_before=None,
        **changes,
    )


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
    return replace(
        state,
        steps={k: replace(r, status="cancelled") if r.status in UNDER_WAY else r for k, r in state.steps.items()},
    )


def _looped(state: State, event: e.RunLooped) -> State:
    steps = dict(state.steps)
    for key in event.reset:
        record = steps.get(key)
        if record is not None:
            steps[key] = replace(
                record,
                status="pending",
                round=record.round + 1,
                attempt=0,
                arm=0,
                escalations=0,
                open_id=None,
                effect_id=None,
                until=None,
                waits_on=None,
                outcome=None,
                approved=None,
                expired=None,
                items=None,
            )
    for key in event.reset:
        if key == event.to_step or key.startswith(f"{event.to_step}."):
            steps[key] = replace(steps.get(key, NEW_STEP), feedback=event.feedback)
    steps[event.from_step] = replace(steps.get(event.from_step, NEW_STEP), loops=event.count)
    return replace(state, steps=steps)
