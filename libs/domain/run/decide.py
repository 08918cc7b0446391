"""What follows from a command to a run."""

from dataclasses import replace
from datetime import datetime
from typing import Final, assert_never

from contracts.base import Principal
from contracts.errors import Rejected
from contracts.events import run as e
from contracts.subjects import work
from libs.domain import attempt
from libs.domain.access import holds, is_administrator, sees_run
from libs.domain.core import NOTHING, Decided, facts
from libs.domain.lifecycle import RUN
from libs.domain.run.commands import Advance, Cancel, Create, Resume, RetryStep, RunCommand, Suspend
from libs.domain.run.programs.definition import STEPPERS
from libs.domain.run.state import State
from libs.domain.run.walk import Walk, advance
from libs.language.model import ManualTrigger
from libs.language.paths import MISSING, resolve
from minutebook.models.problem import ProblemItem

RETRYABLE_AFTER_FAILURE: Final = frozenset({"connector_unavailable", "timeout"})
"""Failure classes after which a step of a failed run may be tried again; exhausted attempts may, too."""


def decide(command: RunCommand, state: State, now: datetime) -> Decided:
    """Return the facts that follow from a command; nothing when they are already true.

    Raises:
        contracts.errors.Rejected: ``run.not_found`` (404), ``run.not_yours`` and ``project.not_yours`` (403),
            ``run.context_missing`` (422); 409: ``definition.disabled``, ``run.key_reused``, ``run.not_open``,
            ``run.not_suspended``, ``step.failed``, ``step.not_failed``, ``step.not_retryable``.
    """
    match command:
        case Create():
            return _create(command, state, now)
        case Advance():
            return advance(Walk(command.run_id, now, state, command.evidence), STEPPERS)
        case Cancel():
            _may_operate(command.principal, state)
            if state.status == "cancelled":
                return NOTHING
            _must_allow(state, "cancelled", "cancel")
            return facts(e.RunCancelled(at=now, reason=command.reason))
        case Suspend():
            _may_operate(command.principal, state)
            if state.status == "suspended":
                return NOTHING
            _must_allow(state, "suspended", "suspend")
            return facts(e.RunSuspended(at=now, reason=command.reason))
        case Resume():
            return _resume(command, state, now)
        case RetryStep():
            return _retry(command, state, now)
        case _:
            assert_never(command)


def _create(command: Create, state: State, now: datetime) -> Decided:
    if state.status != "absent":
        return _started_before(command, state)
    walk = Walk(command.run_id, now, state, command.evidence)
    definition, principal = walk.definition, command.principal
    if not definition.enabled:
        raise Rejected("definition.disabled", f"{definition.id} is disabled; sync it with `enabled: true`", status=409)
    roles = {r for t in definition.triggers if isinstance(t, ManualTrigger) for r in t.roles}
    if not any(holds(principal, definition.binding(role)) for role in roles):
        needed = ", ".join(sorted(roles)) or "nobody: the definition has no manual trigger"
        raise Rejected("run.not_yours", f"{definition.id} is started by {needed}", status=403)
    if command.project_id is not None and command.project_id not in principal.projects:
        raise Rejected("project.not_yours", f"you are not a member of project {command.project_id!r}", status=403)
    missing = tuple(
        ProblemItem(path=f"context.{key}", message=f"{definition.id} needs this key; it has no value")
        for key in definition.required_context
        if resolve(key, command.context) in (None, MISSING, "")
    )
    if missing:
        named = ", ".join(item.path for item in missing)
        raise Rejected("run.context_missing", f"the start lacks {named}", errors=missing)
    walk.emit(
        e.RunCreated(
            at=now,
            definition_id=definition.id,
            hash=walk.bundle.hash,
            bundle=command.bundle,
            context=command.context,
            initiated_by=e.UserRef(id=principal.id, email=principal.name),
            trigger=command.trigger,
            project_id=command.project_id,
        )
    )
    return advance(walk, STEPPERS)


def _started_before(command: Create, state: State) -> Decided:
    """The same start sent again gets the run that the first one made; another one under its key is refused."""
    same = (
        state.definition_id == command.definition_id
        and state.context == command.context
        and state.project_id == command.project_id
    )
    if not same:
        raise Rejected(
            "run.key_reused",
            "this idempotency key has started a run with another definition, context or project; use a new key",
            status=409,
            run_id=str(command.run_id),
        )
    return NOTHING


def _resume(command: Resume, state: State, now: datetime) -> Decided:
    _may_operate(command.principal, state)
    if state.status in {"running", "waiting_decision", "waiting_event", "waiting_timer"}:
        return NOTHING
    if state.status != "suspended":
        raise Rejected("run.not_suspended", f"the run is {state.status}; only a suspended run is resumed", status=409)
    failed = next((key for key, record in state.steps.items() if record.status == "failed"), None)
    if failed is not None:
        raise Rejected(
            "step.failed", f"step {failed} has failed; retry it, or restart or cancel the run", status=409, step=failed
        )
    return _go_on(Walk(command.run_id, now, state, command.evidence))


def _retry(command: RetryStep, state: State, now: datetime) -> Decided:
    _may_operate(command.principal, state)
    record = state.step(command.step)
    if record.status != "failed" or record.outcome is not None:
        raise Rejected(
            "step.not_failed", f"step {command.step} is {record.status}; only a failed step is retried", status=409
        )
    exhausted = (state.reason or "").startswith("attempts_exhausted")
    retryable = state.status == "failed" and (exhausted or state.failure_class in RETRYABLE_AFTER_FAILURE)
    if state.status != "suspended" and not retryable:
        raise Rejected(
            "step.not_retryable",
            f"the run is {state.status} ({state.failure_class or 'no failure class'}); a step is retried while the run "
            "is suspended, or after it failed as attempts_exhausted, connector_unavailable or timeout",
            status=409,
        )
    return _go_on(Walk(command.run_id, now, state, command.evidence, retry=command.step))


def _go_on(walk: Walk) -> Decided:
    """Resume and plan on. Attempts that wait for a runner are made claimable again: a suspended run's were not."""
    queued = {
        record.open_id: work(child.executor, child.queue)
        for record in walk.state.steps.values()
        if isinstance(child := walk.child(record.open_id), attempt.State)
        and record.open_id is not None
        and record.status == child.status == "queued"
    }
    walk.emit(e.RunResumed(at=walk.now))
    return replace(advance(walk, STEPPERS), ready=queued)


def _may_operate(principal: Principal, state: State) -> None:
    """Initiator and administrators operate a run; who cannot see it does not learn that it exists."""
    initiator = state.initiated_by
    if initiator is None or not sees_run(principal, initiator.id, state.project_id):
        raise Rejected("run.not_found", "there is no such run", status=404)
    if principal.id != initiator.id and not is_administrator(principal):
        raise Rejected("run.not_yours", "only the run's initiator and administrators may do this", status=403)


def _must_allow(state: State, target: str, act: str) -> None:
    if target not in RUN[state.status]:
        raise Rejected("run.not_open", f"the run is {state.status}; it cannot {act} any more", status=409)
