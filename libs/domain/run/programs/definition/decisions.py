"""Decision steps: open a human task for a role, follow its one answer."""

from contracts import ids
from contracts.events import run as e
from contracts.events.decision import DecisionOpened
from libs.domain.access import escalation_binding
from libs.domain.core import Birth
from libs.domain.decision import State
from libs.domain.run.programs.definition.endings import said, stop
from libs.domain.run.programs.definition.failures import fail
from libs.domain.run.programs.definition.loops import loop
from libs.domain.run.walk import Walk
from libs.language.model import AgentStep, DecisionStep, ManualStep, ParallelStep


def decision(walk: Walk, step: DecisionStep, key: str) -> None:
    """Open a decision; follow its answer, or fail when nobody gave one in time."""
    if walk.begins(key):
        _open(walk, step, key)
        return
    record = walk.state.step(key)
    child = walk.child(record.open_id)
    if record.status != "waiting":
        return
    if not isinstance(child, State) or child.outcome is None:
        if walk.overdue(key):
            fail(walk, key, "timeout", f"nobody answered {key} within its timeout of {step.timeout}")
        return
    match child.outcome:
        case "approve":
            if record.shown_step is not None and child.artifact is not None:
                walk.emit(
                    e.RunArtifactApproved(
                        at=walk.now,
                        step=record.shown_step,
                        decision_step=key,
                        artifact=child.revised or child.artifact,
                        revised=child.revised is not None,
                    )
                )
            walk.emit(e.RunStepSucceeded(at=walk.now, step=key, outcome="approve"))
        case "request_changes":
            _redo(walk, step, key, child)
        case "reject" | "cancel":
            stop(walk, key, child.outcome, said(key, child))


def _open(walk: Walk, step: DecisionStep, key: str) -> None:
    record = walk.state.step(key)
    initiated_by = walk.state.initiated_by
    assert initiated_by is not None
    shown_step = step.artifact or _producer_before(walk, key)
    shown = walk.state.step(shown_step).output if shown_step else None
    decision_id = ids.decision(walk.run_id, key, record.round, record.attempt + 1)
    walk.emit(
        e.RunStepWaiting(
            at=walk.now,
            step=key,
            round=record.round,
            decision_id=decision_id,
            artifact_step=shown_step,
            artifact=shown,
            until=walk.now + step.timeout if step.timeout else None,
        )
    )
    walk.births.append(
        Birth(
            category="decision",
            stream_id=decision_id,
            event=DecisionOpened(
                at=walk.now,
                run_id=walk.run_id,
                definition_id=walk.state.definition_id,
                step=key,
                title=step.name or key.replace("_", " "),
                round=record.round,
                role=step.role,
                binding=walk.definition.binding(step.role),
                outcomes=step.outcomes,
                artifact_step=shown_step,
                artifact=shown,
                initiated_by=initiated_by,
                project_id=walk.state.project_id,
                due_at=walk.now + step.due if step.due else None,
                due_seconds=step.due.total_seconds() if step.due else None,
                escalate_to=step.escalate_to,
                escalate_binding=escalation_binding(step.escalate_to, walk.definition.binding(step.escalate_to))
                if step.escalate_to
                else None,
            ),
        )
    )


def _redo(walk: Walk, step: DecisionStep, key: str, child: State) -> None:
    """Send the run back for the changes, as often as `limits.max_loop` allows."""
    target = step.on.get("request_changes") or step.artifact or _producer_before(walk, key)
    assert target is not None, "the loader refuses request_changes without a step to redo"
    allowed = walk.definition.limits.max_loop
    if walk.state.step(key).loops >= allowed:
        fail(walk, key, "default", f"{said(key, child)}; {target} was redone as often as limits.max_loop of {allowed}")
        return
    walk.emit(e.RunStepSucceeded(at=walk.now, step=key, outcome="request_changes"))
    feedback = e.Feedback(
        source_step=key,
        kind="request_changes",
        comment=child.comment,
        by=child.by.name if child.by else None,
        previous=walk.state.step(target).output,
        revised=child.revised,
    )
    loop(walk, from_step=key, to_step=target, reason="request_changes", feedback=feedback)


def _producer_before(walk: Walk, key: str) -> str | None:
    """The nearest earlier step that makes an artefact."""
    keys = [s.key for s in walk.steps]
    before = walk.steps[: keys.index(key)]
    return next((s.key for s in reversed(before) if isinstance(s, AgentStep | ManualStep | ParallelStep)), None)
