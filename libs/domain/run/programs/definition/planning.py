"""Planning a run to quiescence: every fact that follows now, in one append."""

from collections.abc import Mapping
from typing import Final, Literal

from contracts.events import run as e
from libs.domain.core import Decided
from libs.domain.run.programs.definition.admissions import admitted
from libs.domain.run.programs.definition.agents import agent
from libs.domain.run.programs.definition.branches import parallel
from libs.domain.run.programs.definition.decisions import decision
from libs.domain.run.programs.definition.events import event
from libs.domain.run.programs.definition.failures import action_on, fail
from libs.domain.run.programs.definition.gates import gate
from libs.domain.run.programs.definition.items import each
from libs.domain.run.programs.definition.manual import manual
from libs.domain.run.programs.definition.turns import answered, follow
from libs.domain.run.programs.definition.writes import write
from libs.domain.run.state import UNDER_WAY
from libs.domain.run.walk import Stepper, Walk
from libs.language.model import AgentStep, Step, WriteStep
from libs.language.paths import MISSING, resolve

STEPPERS: Final[Mapping[str, Stepper]] = {
    "agent": agent,
    "decision": decision,
    "event": event,
    "gate": gate,
    "manual": manual,
    "parallel": parallel,
    "write": write,
}


def advance(walk: Walk) -> Decided:
    """Plan until nothing more follows."""
    if not walk.moving or (walk.state.status == "created" and not admitted(walk)):
        return walk.decided()
    if _within_length(walk) and _within_wall_clock(walk):
        _plan(walk)
        _park(walk)
    give_back(walk)
    return walk.decided()


def give_back(walk: Walk) -> None:
    """Return the concurrency key of a run that has ended."""
    if walk.state.admission is not None and walk.state.status in {"completed", "failed", "cancelled"}:
        walk.emit(e.RunAdmissionReturned(at=walk.now, admission_id=walk.state.admission.admission_id))


def _plan(walk: Walk) -> None:
    while walk.moving:
        step = walk.current()
        if step is None:
            walk.emit(e.RunCompleted(at=walk.now, outcome="succeeded"))
            return
        seen = len(walk.events)
        if answered(walk, step.key) and _entered(walk, step):
            follow(walk, step, step.key, _stepper(step))
        if len(walk.events) == seen:
            return


def _stepper(step: Step) -> Stepper:
    plain = STEPPERS[step.kind]
    if isinstance(step, AgentStep | WriteStep) and (for_each := step.for_each) is not None:
        return lambda walk, step_, key: each(walk, step_, for_each, key, plain)
    return plain


def _within_length(walk: Walk) -> bool:
    reason = walk.evidence.too_long
    if reason is not None:
        walk.emit(e.RunSuspended(at=walk.now, failure_class="default", reason=reason))
    return reason is None


def _within_wall_clock(walk: Walk) -> bool:
    limit = walk.definition.limits.wall_clock
    if walk.state.status != "running" or walk.state.working_time(walk.now) <= limit:
        return True
    reason = f"limits.wall_clock: the run has worked longer than {limit}"
    if action_on(walk, "timeout") == "fail":
        for key, record in walk.state.steps.items():
            if record.status in {"queued", "retrying"} and not record.holds_others:
                # Its attempt ends with the run; so marked, the step can be tried again by hand.
                walk.emit(e.RunStepFailed(at=walk.now, step=key, failure_class="timeout", message=reason))
        walk.emit(e.RunFailed(at=walk.now, failure_class="timeout", reason=reason))
    else:
        walk.emit(e.RunSuspended(at=walk.now, failure_class="timeout", reason=reason))
    return False


def _entered(walk: Walk, step: Step) -> bool:
    """Enter the step's stage when the run is not in it yet and its conditions hold."""
    stage = walk.stage_of(step)
    if walk.state.stage == stage.key:
        return True
    for path in stage.entry_requires:
        if resolve(path, walk.view) in (None, MISSING):
            fail(walk, step.key, "missing_data", f"stage {stage.key} needs {path}, which has no value")
            return False
    walk.emit(e.RunStageEntered(at=walk.now, stage=stage.key))
    return True


def _park(walk: Walk) -> None:
    """A run that waits for people, events and moments alone is parked: it holds a row and nothing else."""
    if walk.state.status != "running":
        return
    open_ = [r for r in walk.state.steps.values() if r.status in UNDER_WAY and not r.holds_others]
    if open_ and all(record.status in {"waiting", "delayed"} for record in open_):
        kinds = {record.waits_on for record in open_ if record.status == "waiting"}
        on: Literal["decision", "event", "timer"] = "timer"
        if kinds:
            on = "event" if kinds == {"event"} else "decision"
        walk.emit(e.RunParked(at=walk.now, on=on))
