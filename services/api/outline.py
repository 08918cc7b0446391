"""A definition as people read it, and where a run stands on it."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from contracts.base import Principal
from contracts.events import attempt as a
from libs.domain import attempt, run
from libs.domain.access import holds
from libs.eventstore.port import Recorded
from libs.language.model import (
    AgentStep,
    Bundle,
    DecisionStep,
    Definition,
    EventStep,
    EventTrigger,
    GateStep,
    ManualStep,
    ManualTrigger,
    ParallelStep,
    ScheduleTrigger,
    Step,
    Trigger,
    WriteStep,
)
from minutebook.models import (
    AttemptView,
    DefinitionStage,
    DefinitionStep,
    DefinitionSummary,
    DefinitionTrigger,
    DefinitionView,
    StepView,
    VersionView,
)


def definition_view(
    summary: DefinitionSummary, bundle: Bundle, caller: Principal, versions: tuple[VersionView, ...]
) -> DefinitionView:
    """A workflow for people and forms."""
    value = bundle.definition
    return DefinitionView(
        **summary.model_dump(),
        description=value.description,
        domain=value.domain,
        required_context=value.required_context,
        context_defaults=value.context_defaults,
        variants=tuple(sorted(bundle.variants)),
        run_as=value.run_as,
        triggers=tuple(_trigger(trigger) for trigger in value.triggers),
        stages=tuple(
            DefinitionStage(key=stage.key, name=stage.name, steps=tuple(_declared(step) for step in stage.steps))
            for stage in value.stages
        ),
        may_start=value.enabled and _may_start(value, caller),
        versions=versions,
    )


def _may_start(value: Definition, caller: Principal) -> bool:
    roles = {role for trigger in value.triggers if isinstance(trigger, ManualTrigger) for role in trigger.roles}
    return any(holds(caller, value.binding(role)) for role in roles)


def _trigger(trigger: Trigger) -> DefinitionTrigger:
    match trigger:
        case ManualTrigger():
            return DefinitionTrigger(kind="manual", roles=trigger.roles)
        case EventTrigger():
            return DefinitionTrigger(kind="event", source=trigger.source, match=trigger.match, project=trigger.project)
        case ScheduleTrigger():
            return DefinitionTrigger(
                kind="schedule",
                cron=trigger.cron,
                every_seconds=int(trigger.every.total_seconds()) if trigger.every else None,
                timezone=trigger.timezone,
                overlap=trigger.overlap,
                project=trigger.project,
            )


def _declared(step: Step) -> DefinitionStep:
    match step:
        case AgentStep():
            more: dict[str, Any] = {"executor": step.agent}
        case DecisionStep():
            more = {
                "role": step.role,
                "outcomes": step.outcomes,
                "artifact": step.artifact,
                "question": step.question,
                "approvals": step.approvals.need if step.approvals else 1,
                "not_for": step.barred,
            }
        case ManualStep():
            more = {"role": step.role}
        case EventStep():
            more = {"source": step.source}
        case GateStep():
            more = {"gate": step.gate}
        case ParallelStep():
            more = {"branches": tuple(branch.key for branch in step.parallel), "join": step.join}
        case WriteStep():
            more = {"system": step.system, "tool": step.tool}
    if isinstance(step, AgentStep | WriteStep) and step.for_each is not None:
        more["for_each"] = step.for_each.items
    return DefinitionStep(key=step.key, name=step.name, kind=step.kind, **more)


def steps_of(bundle: Bundle, state: run.State, attempts: Mapping[UUID, tuple[Recorded, ...]]) -> tuple[StepView, ...]:
    """Every step of the pinned definition in order, its branches or items after it."""
    by_step: dict[str, list[AttemptView]] = {}
    for attempt_id, facts in attempts.items():
        key, view = _attempt(attempt_id, facts)
        by_step.setdefault(key, []).append(view)
    return tuple(
        _step(step, key, stage, state, tuple(by_step.get(key, ())))
        for stage, key, step in _outline(bundle.of(state.variant), state)
    )


def _outline(value: Definition, state: run.State) -> Iterator[tuple[str, str, Step]]:
    """(stage, key, step) of everything that has a state of its own."""
    for stage in value.stages:
        for step in stage.steps:
            yield stage.key, step.key, step
            if isinstance(step, ParallelStep):
                for branch in step.parallel:
                    yield stage.key, f"{step.key}.{branch.key}", branch
            elif isinstance(step, AgentStep | WriteStep) and step.for_each is not None:
                for index in _items(state, step.key):
                    yield stage.key, f"{step.key}.{index}", step


def _items(state: run.State, key: str) -> list[int]:
    """The items of a step that were reached."""
    found = [rest for other in state.steps if (rest := other.removeprefix(f"{key}.")) != other and rest.isdecimal()]
    return sorted(map(int, found))


def _step(step: Step, key: str, stage: str, state: run.State, attempts: tuple[AttemptView, ...]) -> StepView:
    record = state.step(key)
    return StepView(
        key=key,
        name=step.name,
        kind=step.kind,
        stage=stage,
        state=record.status,
        round=record.round,
        loops=record.loops,
        outcome=record.outcome,
        artifact_state=record.artifact_state,
        failure_class=record.failure_class,
        message=record.message,
        retry_at=record.not_before if record.status == "retrying" else None,
        begins_at=record.not_before if record.status == "delayed" else None,
        cost_microdollars=record.cost_microdollars,
        attempts=attempts,
    )


def _attempt(attempt_id: UUID, history: tuple[Recorded, ...]) -> tuple[str, AttemptView]:
    events = [recorded.event for recorded in history]
    state = attempt.CATEGORY.fold(tuple(events))
    started: datetime | None = None
    finished: datetime | None = None
    for event in events:
        if isinstance(event, a.AttemptStarted):
            started = event.at
        elif isinstance(event, a.AttemptSucceeded | a.AttemptFailed | a.AttemptCancelled):
            finished = event.at
    view = AttemptView.model_validate(
        {
            "attempt_id": attempt_id,
            "round": state.round,
            "number": state.number,
            "state": state.status,
            "executor": state.executor,
            "queued_at": events[0].at,
            "started_at": started,
            "finished_at": finished,
            "model": state.model,
            "turns": state.turns,
            "usage": state.usage.model_dump(),
            "cost_microdollars": state.cost_microdollars,
            "leases_lost": state.lost,
            "failure_class": state.failure_class,
            "message": state.message,
        }
    )
    return state.step, view
