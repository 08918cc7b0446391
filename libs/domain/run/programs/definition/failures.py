"""What follows when a step fails: another attempt, a question to a person, or the end of the run's planning."""

from contracts import ids
from contracts.base import BlobRef
from contracts.events import run as e
from contracts.events.decision import DecisionOpened
from libs.domain.access import ESCALATION_ROLE, escalation_binding
from libs.domain.core import Birth
from libs.domain.run.backoff import backoff
from libs.domain.run.walk import Walk
from libs.language.model import DecisionStep, GateStep
from minutebook.models.states import FailureAction, FailureClass


def action_on(walk: Walk, failure_class: FailureClass) -> FailureAction:
    """What `on_failure` says about a class; what is not mapped suspends."""
    actions = walk.definition.on_failure
    return actions.get(failure_class) or actions.get("default") or "suspend"


def fail(
    walk: Walk,
    key: str,
    failure_class: FailureClass,
    message: str,
    *,
    cost_microdollars: int = 0,
    refused: BlobRef | None = None,
) -> None:
    """Do what `on_failure` says about a failed step. `refused` is the artefact that its gate did not let pass.

    Only attempts and writes are tried again by themselves: what could not begin would fail in the same way, and what
    a person or an event was waited for has waited as long as it may.
    """
    action = action_on(walk, failure_class)
    record = walk.state.step(key)
    walk.again.discard(key)
    if action == "retry_backoff" and record.status in {"queued", "writing"} and record.open_id is not None:
        allowed = walk.definition.limits.max_attempts
        if record.attempt < allowed:
            walk.emit(
                e.RunStepRetrying(
                    at=walk.now,
                    step=key,
                    failure_class=failure_class,
                    message=message,
                    attempt=record.attempt,
                    not_before=walk.now + backoff(record.open_id, record.attempt),
                    cost_microdollars=cost_microdollars,
                )
            )
            return
        message = f"attempts_exhausted: {record.attempt} attempts, and limits.max_attempts allows {allowed}: {message}"
    walk.emit(
        e.RunStepFailed(
            at=walk.now, step=key, failure_class=failure_class, message=message, cost_microdollars=cost_microdollars
        )
    )
    if walk.is_one_of_any(key):
        return
    if action == "escalate":
        _escalate(walk, key, failure_class, message, refused)
    elif action == "fail":
        walk.emit(e.RunFailed(at=walk.now, failure_class=failure_class, reason=message, step=key))
    else:
        walk.emit(e.RunSuspended(at=walk.now, failure_class=failure_class, reason=message, step=key))


def _escalate(walk: Walk, key: str, failure_class: FailureClass, message: str, refused: BlobRef | None) -> None:
    """Ask a person how the failed step goes on. The run waits for the answer as for any decision."""
    step, record, initiated_by = walk.step_of(key), walk.state.step(key), walk.state.initiated_by
    assert initiated_by is not None
    role = (step.escalate_to if isinstance(step, DecisionStep | GateStep) else None) or ESCALATION_ROLE
    decision_id = ids.escalation(walk.run_id, key, record.round, record.escalations + 1)
    walk.emit(
        e.RunStepEscalated(
            at=walk.now,
            step=key,
            round=record.round,
            failure_class=failure_class,
            message=message,
            decision_id=decision_id,
            role=role,
        )
    )
    name = (step.name if key == step.key else None) or key.replace("_", " ")
    walk.births.append(
        Birth(
            category="decision",
            stream_id=decision_id,
            event=DecisionOpened(
                at=walk.now,
                run_id=walk.run_id,
                definition_id=walk.state.definition_id,
                step=key,
                title=f"{name} failed as {failure_class}. How does it go on?",
                round=record.round,
                role=role,
                binding=escalation_binding(role, walk.definition.binding(role)),
                outcomes=("approve", "request_changes", "reject", "cancel"),
                artifact_step=key if refused else None,
                artifact=refused,
                initiated_by=initiated_by,
                project_id=walk.state.project_id,
                kind="escalation",
            ),
        )
    )
