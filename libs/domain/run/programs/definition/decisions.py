"""Decision steps: open a human task for a role, follow its one answer."""

from contracts import ids
from contracts.errors import Rejected
from contracts.events import run as e
from libs.domain.core import Birth
from libs.domain.decision import State
from libs.domain.run.programs.definition.asking import opening, shown_step_of
from libs.domain.run.programs.definition.endings import said, stop
from libs.domain.run.programs.definition.failures import fail
from libs.domain.run.programs.definition.loops import loop
from libs.domain.run.programs.definition.timeouts import time_out
from libs.domain.run.walk import Walk
from libs.language.model import DecisionStep


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
            time_out(walk, step, key)
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
                        revisers=child.revisers if child.revised is not None else (),
                    )
                )
            walk.emit(e.RunStepSucceeded(at=walk.now, step=key, outcome="approve", by=child.by))
        case "answer":
            walk.emit(e.RunStepSucceeded(at=walk.now, step=key, outcome="answer", output=child.answer, by=child.by))
        case "request_changes":
            _redo(walk, step, key, child)
        case "reject" | "cancel":
            stop(walk, key, child.outcome, child)


def _open(walk: Walk, step: DecisionStep, key: str) -> None:
    record = walk.state.step(key)
    shown_step = shown_step_of(walk, step)
    shown = walk.state.step(shown_step).output if shown_step else None
    decision_id = ids.decision(walk.run_id, key, record.round, record.attempt + 1)
    try:
        opened = opening(walk, step, key, shown_step=shown_step, shown=shown)
    except Rejected as error:
        fail(walk, key, "missing_data", f"the question of {key}: {error.message}")
        return
    walk.emit(
        e.RunStepWaiting(
            at=walk.now,
            step=key,
            round=record.round,
            decision_id=decision_id,
            artifact_step=shown_step,
            artifact=shown,
            until=opened.until,
        )
    )
    walk.births.append(Birth(category="decision", stream_id=decision_id, event=opened))


def _redo(walk: Walk, step: DecisionStep, key: str, child: State) -> None:
    """Send the run back for the changes, as often as `limits.max_loop` allows."""
    target = step.on.get("request_changes") or shown_step_of(walk, step)
    assert target is not None, "the loader refuses request_changes without a step to redo"
    allowed = walk.definition.limits.max_loop
    if walk.state.step(key).loops >= allowed:
        fail(walk, key, "default", f"{said(key, child)}; {target} was redone as often as limits.max_loop of {allowed}")
        return
    walk.emit(e.RunStepSucceeded(at=walk.now, step=key, outcome="request_changes", by=child.by))
    feedback = e.Feedback(
        source_step=key,
        kind="request_changes",
        comment=child.comment,
        by=child.by.name if child.by else None,
        by_id=child.by.person if child.by else None,
        previous=walk.state.step(target).output,
        revised=child.revised,
        others=_remarks(child),
    )
    loop(walk, from_step=key, to_step=target, reason="request_changes", feedback=feedback)


def _remarks(child: State) -> tuple[e.Remark, ...]:
    """What others than its last voter said who asked for changes."""
    last = child.by.id if child.by else None
    return tuple(
        e.Remark(comment=ballot.comment, by=ballot.by.name, by_id=ballot.by.person)
        for ballot in child.ballots
        if ballot.outcome == "request_changes" and ballot.comment and ballot.by.id != last
    )
