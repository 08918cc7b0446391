"""Decision steps: open a human task for a role, follow its one answer."""

from contracts import ids
from contracts.events import run as e
from contracts.events.decision import DecisionOpened
from libs.domain.core import Birth
from libs.domain.decision import State
from libs.domain.run.walk import Walk, loop
from libs.language.model import AgentStep, DecisionStep, ParallelStep


def decision(walk: Walk, step: DecisionStep, key: str) -> None:
    """Open a decision; follow its answer."""
    record = walk.state.step(key)
    if record.status == "pending":
        _open(walk, step, key)
        return
    child = walk.child(record.open_id)
    if record.status != "waiting" or not isinstance(child, State) or child.outcome is None:
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
        case "reject":
            _refuse(walk, key, child)
            walk.emit(e.RunCompleted(at=walk.now, outcome="rejected"))
        case "cancel":
            _refuse(walk, key, child)
            walk.emit(e.RunCancelled(at=walk.now, reason=_said(key, child, "cancelled the run")))


def _open(walk: Walk, step: DecisionStep, key: str) -> None:
    record = walk.state.step(key)
    initiated_by = walk.state.initiated_by
    assert initiated_by is not None
    shown_step = step.artifact or _producer_before(walk, key)
    shown = walk.state.step(shown_step).output if shown_step else None
    exhausted = record.loops >= walk.definition.limits.max_loop
    decision_id = ids.decision(walk.run_id, key, record.round)
    walk.emit(
        e.RunStepWaiting(
            at=walk.now,
            step=key,
            round=record.round,
            decision_id=decision_id,
            artifact_step=shown_step,
            artifact=shown,
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
                outcomes=tuple(o for o in step.outcomes if not (exhausted and o == "request_changes")),
                artifact_step=shown_step,
                artifact=shown,
                initiated_by=initiated_by,
                project_id=walk.state.project_id,
            ),
        )
    )


def _redo(walk: Walk, step: DecisionStep, key: str, child: State) -> None:
    target = step.on.get("request_changes") or step.artifact or _producer_before(walk, key)
    assert target is not None, "the loader refuses request_changes without a step to redo"
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


def _refuse(walk: Walk, key: str, child: State) -> None:
    walk.emit(
        e.RunStepFailed(
            at=walk.now,
            step=key,
            failure_class="default",
            outcome=child.outcome,
            message=_said(key, child, f"answered {child.outcome}"),
        )
    )


def _said(key: str, child: State, what: str) -> str:
    who = child.by.name if child.by else "somebody"
    return f"{who} {what} at {key}" + (f": {child.comment}" if child.comment else "")


def _producer_before(walk: Walk, key: str) -> str | None:
    """The nearest earlier step that makes an artefact."""
    keys = [s.key for s in walk.definition.steps]
    before = walk.definition.steps[: keys.index(key)]
    return next((s.key for s in reversed(before) if isinstance(s, AgentStep | ParallelStep)), None)
