"""What people do with a run that exists: cancel, suspend, resume, try a step again, complete one by hand."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from contracts.base import Actor, Principal
from contracts.errors import Rejected
from contracts.events import run as e
from contracts.subjects import work
from libs.domain import attempt, effect
from libs.domain.access import holds, is_administrator, sees_run
from libs.domain.core import NOTHING, Decided, facts
from libs.domain.lifecycle import RUN
from libs.domain.run.commands import Cancel, Complete, Resume, RetryStep, Suspend
from libs.domain.run.programs.definition import advance, holds_key, request
from libs.domain.run.state import State, StepRecord
from libs.domain.run.walk import MOVING, Walk
from libs.language.fit import misfits
from libs.language.model import ManualStep

RETRYABLE_AFTER_FAILURE: Final = frozenset({"connector_unavailable", "timeout"})
"""Failure classes after which a step of a failed run may be tried again; exhausted attempts may, too."""


def cancel(command: Cancel, state: State, now: datetime) -> Decided:
    may_operate(command.principal, state)
    if state.status == "cancelled":
        return NOTHING
    _must_allow(state, "cancelled", "cancel")
    cancelled = e.RunCancelled(at=now, reason=command.reason, by=command.principal.actor)
    if state.admission is None:
        return facts(cancelled)
    return facts(cancelled, e.RunAdmissionReturned(at=now, admission_id=state.admission.admission_id))


def suspend(command: Suspend, state: State, now: datetime) -> Decided:
    may_operate(command.principal, state)
    if state.status == "suspended":
        return NOTHING
    _must_allow(state, "suspended", "suspend")
    return facts(e.RunSuspended(at=now, reason=command.reason, by=command.principal.actor))


def resume(command: Resume, state: State, now: datetime) -> Decided:
    """Plan on from where the run stands."""
    may_operate(command.principal, state)
    if state.status in MOVING - {"created"}:
        return NOTHING
    if state.status != "suspended":
        raise _not_now(state, "run.not_suspended", "only a suspended run is resumed")
    walk = Walk.of(command.run_id, now, state, command.evidence)
    failed = next((key for key, record in state.steps.items() if _stands_in_the_way(walk, key, record)), None)
    if failed is not None:
        raise Rejected(
            "step.failed", f"step {failed} has failed; retry it, or restart or cancel the run", status=409, step=failed
        )
    if not holds_key(state, command.evidence.verdict):
        raise Rejected(
            "run.held",
            "the run waits for its concurrency key and keeps its place; resume it when it is its turn, or cancel it",
            status=409,
        )
    return _go_on(walk, command.principal)


def retry(command: RetryStep, state: State, now: datetime) -> Decided:
    """Try a failed step once more; of a step with branches or items those that failed."""
    may_operate(command.principal, state)
    key, record = command.step, state.step(command.step)
    below = {name for name, child in state.below(key).items() if child.status == "failed"}
    if record.outcome is not None or (record.status != "failed" and not (record.holds_others and below)):
        raise Rejected("step.not_failed", f"step {key} is {record.status}; only a failed step is retried", status=409)
    above = key.partition(".")[0]
    if above != key and state.step(above).status == "succeeded":
        message = f"step {above} has succeeded without {key}, so nothing waits for it"
        raise Rejected("step.not_failed", message, status=409)
    exhausted = (state.reason or "").startswith("attempts_exhausted")
    retryable = state.status == "failed" and (exhausted or state.failure_class in RETRYABLE_AFTER_FAILURE)
    if state.status != "suspended" and not retryable:
        raise _not_now(
            state,
            "step.not_retryable",
            f"its failure class is {state.failure_class or 'none'}; a step is retried while the run is suspended, or "
            "after it failed as attempts_exhausted, connector_unavailable or timeout",
        )
    walk = Walk.of(command.run_id, now, state, command.evidence)
    walk.again = {key, *below, *({above} if state.step(above).status == "failed" else ())}
    return _go_on(walk, command.principal)


def is_settled(walk: Walk) -> bool:
    """Whether the run is suspended for a write in doubt alone, and what became of the write is known now."""
    state, key = walk.state, walk.state.stopped_at
    if state.status != "suspended" or state.by is not None or state.failure_class is not None or key is None:
        return False
    record = state.step(key)
    child = walk.child(record.open_id)
    return record.status == "writing" and isinstance(child, effect.State) and child.status != "in_doubt"


def go_on_settled(walk: Walk) -> Decided:
    """Resume the run for whoever settled the doubt that it was suspended for, and take what became of it."""
    if walk.evidence.too_long is not None:
        return NOTHING
    assert walk.state.stopped_at is not None, "a settled run was stopped at a step"
    child = walk.child(walk.state.step(walk.state.stopped_at).open_id)
    assert isinstance(child, effect.State), "a settled run was stopped at a write"
    return _resumed(walk, child.settled.by if child.settled is not None else None)


def may_complete(principal: Principal, state: State, record: StepRecord) -> bool:
    """Whether an open manual step is the principal's to complete: by its role, or without one as the initiator."""
    if record.binding is not None:
        return holds(principal, record.binding, project_id=state.project_id)
    initiator = state.initiated_by
    return is_administrator(principal) or (initiator is not None and principal.id == initiator.id)


def complete(command: Complete, state: State, now: datetime) -> Decided:
    """Take a person's artefact as the output of a manual step."""
    principal, key = command.principal, command.step
    _seen(principal, state)
    record = state.step(key)
    walk = Walk.of(command.run_id, now, state, command.evidence)
    step = next((step for step in walk.steps if step.key == key), None)
    if not isinstance(step, ManualStep):
        raise Rejected("step.not_manual", f"the run has no manual step {key!r}", status=404)
    if record.command_id == command.command_id:
        return NOTHING
    if not may_complete(principal, state, record):
        who = f"the role {record.role!r}" if record.role else "the run's initiator and administrators"
        raise Rejected("step.not_yours", f"step {key} is completed by {who}", status=403, role=record.role)
    if record.waits_on != "manual" or record.status != "waiting" or state.status not in MOVING:
        raise _not_open(state, key, record)
    problems = misfits(command.artifact, walk.bundle.schemas.get(step.output or ""), root="artifact")
    if problems:
        said = "; ".join(f"{item.path}: {item.message}" for item in problems[:3])
        raise Rejected("output_invalid", f"the artefact is not what {key} hands off: {said}", errors=problems)
    artifact = walk.keep(command.artifact)
    walk.emit(
        e.RunManualCompleted(
            at=now,
            step=key,
            command_id=command.command_id,
            by=principal.actor,
            artifact=artifact,
            comment=command.comment,
        )
    )
    walk.emit(e.RunStepSucceeded(at=now, step=key, output=artifact, by=principal.actor))
    return advance(walk)


def may_operate(principal: Principal, state: State) -> None:
    """Initiator and administrators operate a run; who cannot see it does not learn that it exists.

    Raises:
        contracts.errors.Rejected: ``run.not_found`` (404), ``run.not_yours`` (403).
    """
    initiator = _seen(principal, state)
    if principal.id != initiator.id and not is_administrator(principal):
        raise Rejected("run.not_yours", "only the run's initiator and administrators may do this", status=403)


def _seen(principal: Principal, state: State) -> e.UserRef:
    initiator = state.initiated_by
    if initiator is None or not sees_run(principal, initiator.id, state.project_id):
        raise Rejected("run.not_found", "there is no such run", status=404)
    return initiator


def _stands_in_the_way(walk: Walk, key: str, record: StepRecord) -> bool:
    """Whether a failed step stops the run. A branch does not where another may still succeed, or has."""
    above = key.partition(".")[0]
    if record.status != "failed":
        return False
    return key == above or (walk.state.step(above).holds_others and not walk.is_one_of_any(key))


def _go_on(walk: Walk, principal: Principal) -> Decided:
    """Resume and plan on, unless the run is too long to be planned."""
    if walk.evidence.too_long is not None:
        message = f"{walk.evidence.too_long}; restart or fork it, or cancel it"
        raise Rejected("run.too_long", message, status=409)
    return _resumed(walk, principal.actor)


def _resumed(walk: Walk, by: Actor | None) -> Decided:
    """Attempts that wait for a runner are made claimable again: a suspended run's were not."""
    queued = {
        record.open_id: work(child.executor, child.queue)
        for record in walk.state.steps.values()
        if isinstance(child := walk.child(record.open_id), attempt.State)
        and record.open_id is not None
        and record.status == child.status == "queued"
    }
    had_failed = walk.state.status == "failed"
    walk.emit(e.RunResumed(at=walk.now, by=by))
    if had_failed and walk.definition.concurrency is not None and walk.state.admission is None:
        request(walk, walk.definition.concurrency, working=True)
    return replace(advance(walk), ready=queued)


def _must_allow(state: State, target: str, act: str) -> None:
    if target not in RUN[state.status]:
        raise _not_now(state, "run.not_open", f"it cannot {act} any more")


def _not_now(state: State, code: str, why: str) -> Rejected:
    """A no that names who was first, where a person was."""
    by = state.by if state.status in MOVING | {"cancelled", "suspended"} else None
    who, when = (by.name, state.by_at) if by else (None, state.finished_at)
    first = f", by {who}" if who else ""
    since = f" since {when.isoformat()}" if when else ""
    return Rejected(
        code,
        f"the run is {state.status}{first}{since}; {why}",
        status=409,
        state=state.status,
        by=who,
        at=when.isoformat() if when else None,
    )


def _not_open(state: State, key: str, record: StepRecord) -> Rejected:
    if record.completed_by is not None and record.status != "pending" and record.completed_at is not None:
        who, when = record.completed_by.name, record.completed_at.isoformat()
        message = f"{who} completed {key} at {when}; a manual step is completed once"
        return Rejected("step.completed", message, status=409, who=who, when=when)
    message = f"step {key} is {record.status} and the run {state.status}: nobody is asked to complete it now"
    return Rejected("step.not_open", message, status=409, state=state.status)
