"""Details: histories folded with the owners' own `evolve` into the public models."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Final, cast
from uuid import UUID

from contracts.base import Event, Principal
from contracts.errors import Broken, Rejected
from contracts.events.run import (
    RunEventAwaited,
    RunFailed,
    RunStepEscalated,
    RunStepQueued,
    RunStepWaiting,
    RunStepWriting,
    RunSuspended,
)
from libs.domain import admission, decision, effect, run
from libs.eventstore.port import EventStore, Recorded
from libs.language.model import Bundle, ManualStep
from minutebook.models import (
    ActorView,
    ArtifactView,
    DecisionAnswerView,
    DecisionSummary,
    DecisionView,
    EffectView,
    HistoryEntry,
    Page,
    Person,
    RunSummary,
    RunView,
    TaskItem,
    TriggerView,
    WaitingForPerson,
)
from services.api import cursors
from services.api.definition_views import DefinitionViews
from services.api.outline import steps_of
from services.api.reads import Histories, Reads, content_of, fold, named
from services.api.standing import waiting_for
from services.api.words import describe

ATTEMPTS: Final = ((RunStepQueued, "attempt_id"),)
DECISIONS: Final = ((RunStepWaiting, "decision_id"), (RunStepEscalated, "decision_id"))
WAITS: Final = ((RunEventAwaited, "wait_id"),)
EFFECTS: Final = ((RunStepWriting, "effect_id"),)
"""The facts of a run that name its streams of a category, and by which field."""


class Views:
    """Reads of runs with all that belongs to them. Callers have judged visibility by the head row before they ask."""

    def __init__(self, store: EventStore, definitions: DefinitionViews) -> None:
        self._store = store
        self._reads = Reads(store)
        self._definitions = definitions

    async def run(self, caller: Principal, run_id: UUID) -> RunView:
        """A run with its steps, attempts, what it waits for and its effects."""
        history = await self._history_of_run(caller.tenant_group, run_id)
        state = fold(run.CATEGORY, history)
        if state.bundle is None or state.created_at is None:
            raise Broken("run.no_birth", f"the history of run {run_id} does not begin with its creation")
        held = [state.admission.admission_id] if state.held and state.admission is not None else []
        attempts, decisions, effects, keys, bundle, now = await asyncio.gather(
            self._events("attempt", caller, named(history, *ATTEMPTS)),
            self._events("decision", caller, named(history, *DECISIONS)),
            self._events("effect", caller, named(history, *EFFECTS)),
            self._events("admission", caller, held),
            self._definitions.bundle(caller.tenant_group, state.bundle),
            self._store.now(),
        )
        asked = {decision_id: fold(decision.CATEGORY, facts) for decision_id, facts in decisions.items()}
        key = next((fold(admission.CATEGORY, facts) for facts in keys.values()), None)
        return RunView.model_validate(
            {
                **_summary(run_id, state),
                "version": len(history),
                "definition_name": bundle.definition.name,
                "trigger": _trigger(state),
                "context": state.context,
                "failure_class": state.failure_class,
                "worked_seconds": max(0.0, state.working_time(now).total_seconds()),
                "steps": steps_of(bundle, state, attempts),
                "waiting_for": waiting_for(caller, run_id, history, state, asked, key),
                "effects": await self._effects(caller, effects),
            }
        )

    async def failed_steps(self, caller: Principal, run_ids: Collection[UUID]) -> Mapping[UUID, str]:
        """The step at which each of these runs stands still; those that stand at none are left out."""
        histories = await self._events("run", caller, run_ids)
        return {run_id: step for run_id, history in histories.items() if (step := _failed_step(history)) is not None}

    async def open_steps(self, caller: Principal, run_ids: Collection[UUID]) -> Mapping[UUID, tuple[str, ...]]:
        """The steps that each of these runs has begun and not ended."""
        histories = await self._events("run", caller, run_ids)
        return {
            run_id: tuple(
                key
                for key, record in fold(run.CATEGORY, history).steps.items()
                if record.status not in {"pending", "succeeded", "cancelled"}
            )
            for run_id, history in histories.items()
        }

    async def tasks(self, caller: Principal, summaries: Mapping[UUID, RunSummary]) -> list[TaskItem]:
        """The manual steps of these runs that the caller may complete."""
        histories = await self._events("run", caller, summaries)
        found: list[TaskItem] = []
        for run_id, summary in summaries.items():
            state = fold(run.CATEGORY, histories.get(run_id, ()))
            waiting = [w for w in waiting_for(caller, run_id, (), state, {}, None) if isinstance(w, WaitingForPerson)]
            for task in waiting:
                if task.may_complete and state.bundle is not None:
                    bundle = await self._definitions.bundle(caller.tenant_group, state.bundle)
                    found.append(_task(task, bundle, state, summary))
        return found

    async def history(self, caller: Principal, run_id: UUID, *, limit: int, cursor: str | None) -> Page[HistoryEntry]:
        """The facts of a run and of all that belongs to it, in the order in which they were recorded.

        A fact that was being committed while the pages were read may stand before a cursor: read again to see it.
        """
        own = await self._history_of_run(caller.tenant_group, run_id)
        related = await asyncio.gather(
            self._events("attempt", caller, named(own, *ATTEMPTS)),
            self._events("decision", caller, named(own, *DECISIONS)),
            self._events("wait", caller, named(own, *WAITS)),
            self._events("effect", caller, named(own, *EFFECTS)),
        )
        streams = [own, *(stream for histories in related for stream in histories.values())]
        entries = sorted(
            ((_place(fact), fact, stream[0].event) for stream in streams for fact in stream), key=lambda entry: entry[0]
        )
        if cursor is not None:
            after = cursors.decode(cursor, cursors.count, cursors.count, cursors.count)
            entries = [entry for entry in entries if entry[0] > after]
        page = entries[:limit]
        return Page(
            items=tuple(_entry(fact, birth) for _, fact, birth in page),
            next_cursor=cursors.encode(*page[-1][0]) if len(entries) > limit else None,
        )

    async def artifact(self, caller: Principal, run_id: UUID, step: str) -> ArtifactView:
        """What a step handed off last.

        Raises:
            contracts.errors.Rejected: 404, the step has produced nothing, or there is no such step.
        """
        state = fold(run.CATEGORY, await self._history_of_run(caller.tenant_group, run_id))
        record = state.step(step)
        if record.artifact_state is None or record.output is None:
            raise Rejected("artifact.not_found", f"step {step!r} of this run has produced no artefact", status=404)
        approved = record.output if record.artifact_state != "proposed" else None
        content = await self._reads.contents(caller.tenant_group, [record.proposed, approved])
        return ArtifactView(
            run_id=run_id,
            step=step,
            state=record.artifact_state,
            revised=approved is not None and approved != record.proposed,
            proposed=content_of(content, record.proposed),
            proposed_digest=record.proposed.digest if record.proposed else None,
            approved=content_of(content, approved),
            approved_digest=approved.digest if approved else None,
        )

    async def decision(self, caller: Principal, decision_id: UUID) -> DecisionView:
        """A decision with the artefact that it is about."""
        histories = await self._events("decision", caller, [decision_id])
        if decision_id not in histories:
            raise Rejected("decision.not_found", f"there is no decision {decision_id}", status=404)
        state = fold(decision.CATEGORY, histories[decision_id])
        content = await self._reads.contents(caller.tenant_group, [state.artifact, state.revised])
        answer = None
        if state.by is not None and state.outcome is not None and state.answered_at is not None:
            answer = DecisionAnswerView(
                outcome=state.outcome,
                by=ActorView.model_validate(state.by.model_dump()),
                at=state.answered_at,
                comment=state.comment,
                revised=state.revised is not None,
            )
        return DecisionView.model_validate(
            {
                **_decision(caller, decision_id, state),
                "initiated_by": _person(state),
                "artifact": content_of(content, state.artifact),
                "artifact_digest": state.artifact.digest if state.artifact else None,
                "revised_artifact": content_of(content, state.revised),
                "answer": answer,
                "withdrawn_because": state.withdrawn_because,
            }
        )

    async def decisions(self, caller: Principal, decision_ids: Collection[UUID]) -> Mapping[UUID, DecisionSummary]:
        """Decisions by id, without artefacts."""
        histories = await self._events("decision", caller, decision_ids)
        return {
            decision_id: DecisionSummary.model_validate(
                _decision(caller, decision_id, fold(decision.CATEGORY, history))
            )
            for decision_id, history in histories.items()
        }

    async def effects(self, caller: Principal, effect_ids: Collection[UUID]) -> Mapping[UUID, EffectView]:
        """Effects by id, with their arguments."""
        views = await self._effects(caller, await self._events("effect", caller, effect_ids))
        return {view.effect_id: view for view in views}

    async def _history_of_run(self, tenant_group: UUID, run_id: UUID) -> tuple[Recorded, ...]:
        histories = await self._store.events("run", [run_id], tenant_group=tenant_group)
        if run_id not in histories:
            raise Rejected("run.not_found", f"there is no run {run_id}", status=404)
        return histories[run_id]

    async def _events(self, category: str, caller: Principal, stream_ids: Collection[UUID]) -> Histories:
        return await self._reads.histories(category, caller.tenant_group, stream_ids)

    async def _effects(self, caller: Principal, histories: Histories) -> tuple[EffectView, ...]:
        states = {effect_id: fold(effect.CATEGORY, history) for effect_id, history in histories.items()}
        content = await self._reads.contents(caller.tenant_group, [state.arguments for state in states.values()])
        return tuple(
            EffectView.model_validate(
                {
                    "effect_id": effect_id,
                    "run_id": state.run_id,
                    "step": state.step,
                    "key": state.key,
                    "system": state.system,
                    "tool": state.tool,
                    "state": state.status,
                    "reference": state.reference,
                    "failure_class": state.failure_class,
                    "message": state.message,
                    "arguments": content_of(content, state.arguments),
                    "declared_at": histories[effect_id][0].event.at,
                    "changed_at": histories[effect_id][-1].event.at,
                }
            )
            for effect_id, state in states.items()
        )


def _failed_step(history: tuple[Recorded, ...]) -> str | None:
    state = fold(run.CATEGORY, history)
    failed = [key for key, record in state.steps.items() if record.status == "failed"]
    for fact in reversed(history):
        if isinstance(fact.event, RunSuspended | RunFailed):
            return fact.event.step if fact.event.step in failed else next(iter(failed), None)
    return None


def _summary(run_id: UUID, state: run.State) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "definition_id": state.definition_id,
        "definition_hash": state.hash,
        "state": state.status,
        "stage": state.stage,
        "outcome": state.outcome,
        "reason": state.reason,
        "project_id": state.project_id,
        "initiated_by": _person(state),
        "created_at": state.created_at,
        "finished_at": state.finished_at,
        "cost_microdollars": state.cost_microdollars,
        "variant": state.variant,
        "parent": state.parent,
    }


def _person(state: run.State | decision.State) -> Person:
    if state.initiated_by is None:
        raise Broken("stream.no_birth", "a history does not begin with its birth")
    return Person(id=state.initiated_by.id, email=state.initiated_by.email)


def _trigger(state: run.State) -> TriggerView | None:
    trigger = state.trigger
    if trigger is None:
        return None
    return TriggerView(
        kind=trigger.kind,
        key=trigger.key,
        source=trigger.source,
        event_id=trigger.inbound_id,
        slot=trigger.slot,
    )


def _decision(caller: Principal, decision_id: UUID, state: decision.State) -> dict[str, Any]:
    return {
        "decision_id": decision_id,
        "run_id": state.run_id,
        "definition_id": state.definition_id,
        "project_id": state.project_id,
        "step": state.step,
        "title": state.title,
        "round": state.round,
        "role": state.role,
        "outcomes": state.outcomes,
        "state": state.status,
        "opened_at": state.opened_at,
        "kind": state.kind,
        "due_at": state.due_at,
        "escalated_to": state.escalated_to,
        "artifact_step": state.artifact_step,
        "may_answer": state.status == "open" and decision.may_answer(caller, state),
    }


def _place(fact: Recorded) -> tuple[int, int, int]:
    return fact.era, fact.xid, fact.position


def _entry(fact: Recorded, birth: Event) -> HistoryEntry:
    return HistoryEntry(
        stream=cast(Any, fact.category),
        stream_id=fact.stream_id,
        version=fact.version,
        type=fact.type,
        at=fact.event.at,
        actor=ActorView.model_validate(fact.metadata.actor.model_dump()),
        text=describe(fact.event, birth=birth, actor=fact.metadata.actor),
        data=fact.event.model_dump(mode="json"),
        digest=fact.digest.hex(),
    )


def _task(task: WaitingForPerson, bundle: Bundle, state: run.State, summary: RunSummary) -> TaskItem:
    step = next(step for step in bundle.of(state.variant).steps if step.key == task.step)
    assert isinstance(step, ManualStep), "a person is waited for at a manual step"
    return TaskItem(
        step=task.step,
        title=step.name or task.step.replace("_", " "),
        role=task.role,
        opened_at=task.opened_at,
        until=task.until,
        output_schema=bundle.schemas.get(step.output) if step.output else None,
        run=summary,
    )
