"""Decisions that nobody answers in time: an answer of their own, another way on, or a failure. Never a refusal."""

from typing import Final

from contracts.events import run as e
from libs.domain.core import Guard
from libs.domain.lifecycle import DECISION
from libs.domain.run.programs.definition.failures import fail
from libs.domain.run.programs.definition.loops import loop
from libs.domain.run.walk import Walk
from libs.language.model import DecisionStep

UNANSWERED: Final = frozenset(DECISION) - {"absent", "answered"}


def time_out(walk: Walk, step: DecisionStep, key: str) -> None:
    """Do what the step says for want of an answer, unless one has come since the decision was read."""
    open_id = walk.state.step(key).open_id
    if open_id is not None:
        walk.guards.append(Guard("decision", open_id, UNANSWERED))
    message = f"nobody answered {key} within its timeout of {step.timeout}"
    if step.timeout_answer is not None:
        answer = walk.keep(step.timeout_answer)
        walk.emit(e.RunStepSucceeded(at=walk.now, step=key, outcome="answer", output=answer))
    elif step.on_timeout is None:
        fail(walk, key, "timeout", message)
    else:
        _go_on_at(walk, step.on_timeout, key, message)


def _go_on_at(walk: Walk, target: str, key: str, message: str) -> None:
    keys = [step.key for step in walk.steps]
    here, there = keys.index(key), keys.index(target)
    if there > here:
        walk.emit(e.RunStepSkipped(at=walk.now, step=key, reason=f"{message}; the run goes on at {target}"))
        for passed in keys[here + 1 : there]:
            reason = f"{key} timed out, and the run goes on at {target}"
            walk.emit(e.RunStepSkipped(at=walk.now, step=passed, reason=reason))
        return
    allowed = walk.definition.limits.max_loop
    if walk.state.step(key).loops >= allowed:
        fail(walk, key, "timeout", f"{message}, after limits.max_loop of {allowed} loops to {target}")
        return
    walk.emit(e.RunStepSkipped(at=walk.now, step=key, reason=f"{message}; the run goes back to {target}"))
    feedback = e.Feedback(source_step=key, kind="timeout", comment=message, previous=walk.state.step(target).output)
    loop(walk, from_step=key, to_step=target, reason="timeout", feedback=feedback)
