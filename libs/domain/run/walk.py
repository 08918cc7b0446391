"""A plan in the making: the facts gathered so far, and the state that they add up to.

Steppers look at one step at a time and write what follows into the walk, until nothing more follows without somebody
else: a runner, a person, a target system, an event or the clock.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from contracts.base import BlobRef, Event, JsonObject, JsonValue
from contracts.errors import Broken
from contracts.events import run as e
from libs.canonical import blob
from libs.domain.core import Birth, Decided, Guard
from libs.domain.run.commands import Child, Evidence
from libs.domain.run.evolve import evolve
from libs.domain.run.state import State
from libs.language.model import Bundle, Definition, ParallelStep, Stage, Step

FACTS_PER_PLAN_MAX: Final = 5_000
"""A plan that writes more is a loop of ours, not of the definition."""

MOVING: Final = frozenset({"created", "running", "waiting_decision", "waiting_event", "waiting_timer"})
"""States in which a run can be planned."""


@dataclass(slots=True)
class Walk:
    """Facts gathered so far, and the state that they add up to. Lives inside one call of `decide`.

    `again` are the failed steps that a person wants tried once more, `comments` what they said to it. `made` are
    artefacts of this plan by digest.
    """

    run_id: UUID
    now: datetime
    state: State
    evidence: Evidence
    definition: Definition
    again: set[str] = field(default_factory=set)
    comments: dict[str, e.Feedback] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    births: list[Birth] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    made: dict[str, JsonValue] = field(default_factory=dict)
    steps: tuple[Step, ...] = field(init=False)
    _stage_of: dict[str, Stage] = field(init=False)
    _step_of: dict[str, Step] = field(init=False)
    _cursor: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.steps = self.definition.steps
        self._stage_of = {step.key: stage for stage in self.definition.stages for step in stage.steps}
        self._step_of = {step.key: step for step in self.steps}

    @classmethod
    def of(cls, run_id: UUID, now: datetime, state: State, evidence: Evidence) -> "Walk":
        """A plan for a run that exists, on the version and variant that it is pinned to."""
        assert evidence.bundle is not None, "a plan is made with its evidence"
        return cls(run_id, now, state, evidence, evidence.bundle.of(state.variant))

    @property
    def bundle(self) -> Bundle:
        assert self.evidence.bundle is not None, "a plan is made with its evidence"
        return self.evidence.bundle

    @property
    def moving(self) -> bool:
        """Whether the run can be planned at all."""
        return self.state.status in MOVING

    @property
    def context(self) -> JsonObject:
        """The run's context, with the definition's defaults under it."""
        return {**self.definition.context_defaults, **self.state.context}

    @property
    def run_state(self) -> JsonObject:
        """What templates and expressions call `state`."""
        return self.run_state_of(self.run_id)

    def run_state_of(self, run_id: UUID) -> JsonObject:
        """What another run would call `state` at this point."""
        return {"branch": f"workflow/{run_id}", "run_id": str(run_id), "stage": self.state.stage}

    @property
    def view(self) -> dict[str, Any]:
        """What paths of the definition lead into, beside a step's own output."""
        return {"context": self.context, "state": self.run_state, "steps": self.outputs()}

    def emit(self, event: Event) -> None:
        """Add a fact. A parked run is unparked by the first fact that follows."""
        if self.state.status.startswith("waiting_") and not isinstance(event, e.RunUnparked):
            self.emit(e.RunUnparked(at=self.now))
        if len(self.events) >= FACTS_PER_PLAN_MAX:
            raise Broken("plan.endless", f"planning run {self.run_id} wrote {FACTS_PER_PLAN_MAX} facts without an end")
        if isinstance(event, e.RunLooped | e.RunApprovalExpired):
            self._cursor = 0
        self.events.append(event)
        self.state = evolve(self.state, event)

    def keep(self, value: Any) -> BlobRef:
        """Keep a JSON value as a blob of this append; this plan may read it back."""
        ref, content = blob(value)
        self.blobs[ref.digest] = content
        self.made[ref.digest] = value
        return ref

    def current(self) -> Step | None:
        """The first step that has neither succeeded nor been passed over."""
        while self._cursor < len(self.steps):
            step = self.steps[self._cursor]
            if self.state.step(step.key).status not in {"succeeded", "skipped"}:
                return step
            self._cursor += 1
        return None

    def stage_of(self, step: Step) -> Stage:
        return self._stage_of[step.key]

    def step_of(self, key: str) -> Step:
        """The step, branch or repeated step that a key of a record stands for."""
        top, _, rest = key.partition(".")
        step = self._step_of[top]
        if rest and isinstance(step, ParallelStep):
            return next(branch for branch in step.parallel if branch.key == rest)
        return step

    def item_of(self, key: str) -> tuple[int, JsonValue] | None:
        """The index and the value of the item that `<step>.<index>` stands for; None for everything else."""
        top, _, rest = key.partition(".")
        items = self.state.step(top).items
        if not rest or items is None:
            return None
        values = self.artefact(items)
        assert isinstance(values, list), "what was pinned as items is a list"
        return int(rest), values[int(rest)]

    def is_one_of_any(self, key: str) -> bool:
        """Whether a branch may fail without stopping the run, since another may still succeed."""
        top, _, rest = key.partition(".")
        step = self._step_of[top]
        return bool(rest) and isinstance(step, ParallelStep) and step.join == "any"

    def begins(self, key: str) -> bool:
        """Whether a step begins now: it is its turn, or a person wants it tried once more."""
        record = self.state.step(key)
        if record.status == "delayed":
            return record.not_before is None or self.now >= record.not_before
        return record.status == "pending" or key in self.again

    def overdue(self, key: str) -> bool:
        """Whether a step has waited as long as it may."""
        record = self.state.step(key)
        return record.status == "waiting" and record.until is not None and self.now >= record.until

    def child(self, stream_id: UUID | None) -> Child | None:
        """The attempt, decision, wait or effect as it was read; None when it was born a moment ago."""
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
            for step in self.steps
            if self.state.step(step.key).output is not None and self.state.step(step.key).status == "succeeded"
        }

    def decided(self) -> Decided:
        return Decided(
            events=tuple(self.events),
            births=tuple(self.births),
            guards=tuple(self.guards),
            blobs=self.blobs,
            state=self.state,
        )


Stepper = Callable[[Walk, Any, str], None]
"""Looks at one step under its key and emits what follows for it now."""
