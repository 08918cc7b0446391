"""Forks: a new run that goes on from a point of another one's history, with something changed or nothing."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from contracts.base import BlobRef, Event, JsonObject
from contracts.errors import Rejected
from contracts.events import run as e
from libs.domain.core import Decided
from libs.domain.run.commands import Fork
from libs.domain.run.evolve import evolve
from libs.domain.run.operating import may_operate
from libs.domain.run.programs.definition import advance
from libs.domain.run.programs.definition.four_eyes import deciders_of, revisers_of
from libs.domain.run.starting import created, definition_of, must_be_admissible, same_child
from libs.domain.run.state import State, StepRecord
from libs.domain.run.walk import Walk
from libs.language.model import DecisionStep, Step, WriteStep
from minutebook.models.problem import ProblemItem


def point(events: Sequence[Event], *, at_version: int | None, from_step: str | None) -> tuple[State, int]:
    """Return the run as it was at a version, or just before a step began last, or now; and that version.

    Raises:
        contracts.errors.Rejected: ``fork.version`` and ``fork.step`` (422), the history has no such point.
    """
    if at_version is not None and from_step is not None:
        raise Rejected("fork.point", "name `at_version` or `from_step`, not both")
    if at_version is not None and at_version > len(events):
        message = f"the run's history ends at version {len(events)}"
        raise Rejected("fork.version", message, errors=(ProblemItem(path="at_version", message=message),))
    end = _before(events, from_step) if from_step is not None else at_version or len(events)
    state = State()
    for event in events[:end]:
        state = evolve(state, event)
    return state, end


def fork(command: Fork, state: State, now: datetime) -> Decided:
    """Create the new run, let it inherit what was finished, and plan on from there."""
    parent, principal = command.parent, command.principal
    may_operate(principal, parent)
    if state.status != "absent":
        return same_child(state, command.parent_id)
    definition = definition_of(command.evidence, parent.variant)
    context: JsonObject = {**definition.context_defaults, **parent.context, **command.context}
    must_be_admissible(definition, command.evidence, context)
    walk = Walk(command.run_id, now, state, command.evidence, definition)
    walk.emit(
        created(
            walk,
            command.bundle,
            principal,
            context,
            project_id=parent.project_id,
            variant=parent.variant,
            parent=command.parent_id,
        )
    )
    walk.emit(
        e.RunForked(at=now, parent=command.parent_id, at_version=command.at_version, effects=dict(command.effects))
    )
    _inherit(walk, command)
    return advance(walk)


def _before(events: Sequence[Event], step: str) -> int:
    """The version just before a step began last."""
    state, found = State(), None
    for index, event in enumerate(events):
        after = evolve(state, event)
        if state.step(step).status == "pending" and after.step(step).status != "pending":
            found = index
        state = after
    if found is None:
        message = f"the run has not come to a step {step!r}"
        raise Rejected("fork.step", message, errors=(ProblemItem(path="from_step", message=message),))
    return found


def _inherit(walk: Walk, command: Fork) -> None:
    """Take over the steps that were finished, with the artefacts that are laid over theirs."""
    finished = _finished(walk, command.parent)
    asked_anew = _asked_anew(walk, command, finished)
    unknown = [key for key in command.artifacts if key not in finished or finished[key].output is None]
    if unknown:
        errors = tuple(
            ProblemItem(path=f"artifacts.{key}", message="no finished step of this key left an artefact there")
            for key in unknown
        )
        raise Rejected("fork.artifact", f"nothing to lay an artefact over: {', '.join(unknown)}", errors=errors)
    for key, record in finished.items():
        if key in asked_anew:
            continue
        laid = key in command.artifacts
        output: BlobRef | None = walk.keep(command.artifacts[key]) if laid else record.output
        revisers = revisers_of(command.parent, walk.child, key)
        walk.emit(
            e.RunStepInherited(
                at=walk.now,
                step=key,
                output=output,
                artifact_state="proposed" if laid else record.artifact_state,
                outcome=record.outcome,
                by=record.by,
                deciders=deciders_of(command.parent, walk.child, key),
                revisers=tuple(dict.fromkeys((*revisers, command.principal.id))) if laid else revisers,
            )
        )
    for step in walk.steps:
        passed_over = command.parent.step(step.key)
        if passed_over.status == "skipped":
            walk.emit(e.RunStepSkipped(at=walk.now, step=step.key, reason=passed_over.message or "passed over before"))


def _finished(walk: Walk, parent: State) -> dict[str, StepRecord]:
    """What succeeded at the point, of the steps that the version has; a step's branches and items come with it."""
    known = {step.key for step in walk.steps}
    return {
        key: record
        for key, record in parent.steps.items()
        if record.status == "succeeded"
        and (top := key.partition(".")[0]) in known
        and (key == top or parent.step(top).status == "succeeded" or parent.step(top).items is None)
    }


def _asked_anew(walk: Walk, command: Fork, finished: dict[str, StepRecord]) -> set[str]:
    """Decisions that are not inherited: what was approved is not what will be written.

    That is so for a decision on an artefact that another one is laid over, and, when anything was changed, for each
    that a write of the new run rests on; always for an approval that ends, and for a quorum whose voters a decision of
    the new run bars.
    """
    asked = {key for key, record in finished.items() if record.shown_step in command.artifacts}
    to_come = [step for step in walk.steps if finished.get(step.key) is None]
    barring = {key for step in to_come if isinstance(step, DecisionStep) for key in step.barred}
    asked |= {
        step.key
        for step in walk.steps
        if isinstance(step, DecisionStep)
        and ((step.approval_valid_for and _rest_on(step.key, to_come)) or (step.approvals and step.key in barring))
    }
    if command.context or command.artifacts or walk.bundle.hash != command.parent.hash:
        asked |= {step.requires_decision for step in to_come if isinstance(step, WriteStep)}
    return asked


def _rest_on(decision: str, steps: Iterable[Step]) -> bool:
    return any(isinstance(step, WriteStep) and step.requires_decision == decision for step in steps)
