"""Planning a run to quiescence: gather every fact that follows now, in one append.

The walk looks at one step at a time, writes what follows into itself and goes on until nothing more follows
without somebody else: a runner, a person, a target system or the clock.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from contracts.base import BlobRef, Event, JsonObject, JsonValue
from contracts.errors import Broken
from contracts.events import run as e
from libs.canonical import blob
from libs.domain.core import Birth, Decided
from libs.domain.run.backoff import backoff
from libs.domain.run.commands import Child, Evidence
from libs.domain.run.state import State, evolve
from libs.language.model import Bundle, Definition, Step
from libs.language.paths import MISSING, resolve
from minutebook.models.states import FailureClass

FACTS_PER_PLAN_MAX: Final = 2_000
"""A plan that writes more is a loop of ours, not of the definition."""


@dataclass(slots=True)
class Walk:
    """Facts gathered so far, and the state that they add up to. Lives inside one call of `decide`.

    `retry` is the failed step that a person wants tried once more.
    """

    run_id: UUID
    now: datetime
    state: State
    evidence: Evidence
    retry: str | None = None
    events: list[Event] = field(default_factory=list)
    births: list[Birth] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    made: dict[str, JsonValue] = field(default_factory=dict)

    @property
    def bundle(self) -> Bundle:
        assert self.evidence.bundle is not None, "a plan is made with its evidence"
        return self.evidence.bundle

    @property
    def definition(self) -> Definition:
        return self.bundle.definition

    @property
    def moving(self) -> bool:
        """Whether the run can be planned at all."""
        return self.state.status in {"created", "running", "waiting_decision", "waiting_event", "waiting_timer"}

    def emit(self, event: Event) -> None:
        """Add a fact. A parked run is unparked by the first fact that follows."""
        if self.state.status.startswith("waiting_") and not isinstance(event, e.RunUnparked):
            self.emit(e.RunUnparked(at=self.now))
        if len(self.events) >= FACTS_PER_PLAN_MAX:
            raise Broken("plan.endless", f"planning run {self.run_id} wrote {FACTS_PER_PLAN_MAX} facts without an end")
        self.events.append(event)
        self.state = evolve(self.state, event)

    def keep(self, value: Any) -> BlobRef:
        """Keep a JSON value as a blob of this append; this plan may read it back."""
        ref, content = blob(value)
        self.blobs[ref.digest] = content
        self.made[ref.digest] = value
        return ref

    def child(self, stream_id: UUID | None) -> Child | None:
        """The attempt, decision or effect as it was read; None when it was born a moment ago."""
        return self.evidence.children.get(stream_id) if stream_id else None

    def artefact(self, ref: BlobRef) -> JsonValue:
        """The content of an artefact.

        Raises:
            contracts.errors.Broken: it is not in the store, which the history says it must be.
        """
        if ref.digest in self.made:
            return self.made[ref.digest]
        if ref.digest not in self.evidence.artefacts:
            raise Broken("artefact.missing", f"the content of artefact {ref.digest} is not in the store")
        return self.evidence.artefacts[ref.digest]

    def output(self, key: str) -> JsonValue:
        """The output of a step; None while it has none."""
        ref = self.state.step(key).output
        return None if ref is None else self.artefact(ref)

    def outputs(self) -> dict[str, JsonValue]:
        """The outputs of the top-level steps that succeeded, by key, as expressions and prompts see them."""
        return {
            step.key: self.output(step.key)
            for step in self.definition.steps
            if self.state.step(step.key).output is not None and self.state.step(step.key).status == "succeeded"
        }

    @property
    def run_state(self) -> JsonObject:
        """What templates and expressions call `state`."""
        return {"branch": f"workflow/{self.run_id}", "run_id": str(self.run_id), "stage": self.state.stage}

    def decided(self) -> Decided:
        return Decided(events=tuple(self.events), births=tuple(self.births), blobs=self.blobs)


Stepper = Callable[[Walk, Any, str], None]
"""Looks at one step under its key and emits what follows for it now."""


def advance(walk: Walk, steppers: Mapping[str, Stepper]) -> Decided:
    """Plan until nothing more follows."""
    if not walk.moving:
        return walk.decided()
    if walk.state.status == "created":
        walk.emit(e.RunStarted(at=walk.now))
    if not _within_wall_clock(walk):
        return walk.decided()
    while walk.moving:
        step = _current(walk)
        if step is None:
            walk.emit(e.RunCompleted(at=walk.now, outcome="succeeded"))
            break
        if not _entered(walk, step):
            break
        seen = len(walk.events)
        steppers[step.kind](walk, step, step.key)
        if len(walk.events) == seen:
            break
    _park(walk)
    return walk.decided()


def fail(walk: Walk, key: str, failure_class: FailureClass, message: str, *, cost_microdollars: int = 0) -> None:
    """Do what `on_failure` says about a failed step: try again later, suspend the run, or fail it."""
    actions = walk.definition.on_failure
    action = actions.get(failure_class) or actions.get("default") or "suspend"
    record = walk.state.step(key)
    if action == "retry_backoff" and record.open_id is not None:
        if record.attempt < walk.definition.limits.max_attempts:
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
        message = f"attempts_exhausted: {record.attempt} of {walk.definition.limits.max_attempts} attempts: {message}"
    walk.emit(
        e.RunStepFailed(
            at=walk.now, step=key, failure_class=failure_class, message=message, cost_microdollars=cost_microdollars
        )
    )
    if action == "fail":
        walk.emit(e.RunFailed(at=walk.now, failure_class=failure_class, reason=message, step=key))
    else:
        walk.emit(e.RunSuspended(at=walk.now, failure_class=failure_class, reason=message, step=key))


def loop(walk: Walk, *, from_step: str, to_step: str, reason: str, feedback: e.Feedback) -> None:
    """Send the run back: every step from `to_step` to `from_step` begins a new round."""
    keys = [step.key for step in walk.definition.steps]
    between = set(keys[keys.index(to_step) : keys.index(from_step) + 1])
    reset = tuple(key for key in walk.state.steps if key.split(".")[0] in between)
    walk.emit(
        e.RunLooped.model_validate(
            {
                "at": walk.now,
                "from_step": from_step,
                "to_step": to_step,
                "reset": reset,
                "count": walk.state.step(from_step).loops + 1,
                "reason": reason,
                "feedback": feedback,
            }
        )
    )


def _within_wall_clock(walk: Walk) -> bool:
    limit = walk.definition.limits.wall_clock
    if walk.state.status != "running" or walk.state.working_time(walk.now) <= limit:
        return True
    reason = f"limits.wall_clock: the run has worked longer than {limit}"
    if walk.definition.on_failure.get("timeout") == "fail":
        walk.emit(e.RunFailed(at=walk.now, failure_class="timeout", reason=reason))
    else:
        walk.emit(e.RunSuspended(at=walk.now, failure_class="timeout", reason=reason))
    return False


def _current(walk: Walk) -> Step | None:
    return next((s for s in walk.definition.steps if walk.state.step(s.key).status != "succeeded"), None)


def _entered(walk: Walk, step: Step) -> bool:
    """Enter the step's stage when the run is not in it yet and its conditions hold."""
    stage = next(stage for stage in walk.definition.stages if step in stage.steps)
    if walk.state.stage == stage.key:
        return True
    view = {"context": walk.state.context, "state": walk.run_state, "steps": walk.outputs()}
    for path in stage.entry_requires:
        if resolve(path, view) in (None, MISSING):
            fail(walk, step.key, "missing_data", f"stage {stage.key} needs {path}, which has no value")
            return False
    walk.emit(e.RunStageEntered(at=walk.now, stage=stage.key))
    return True


def _park(walk: Walk) -> None:
    """A run that waits for people alone is parked: it holds a row and nothing else."""
    open_ = {r.status for r in walk.state.steps.values() if r.status in {"queued", "waiting", "writing", "retrying"}}
    if walk.state.status == "running" and open_ == {"waiting"}:
        walk.emit(e.RunParked(at=walk.now, on="decision"))
