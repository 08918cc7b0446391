"""Details: histories folded with the owners' own `evolve` into the public models."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, cast
from uuid import UUID

from pydantic import JsonValue

from contracts.base import BlobRef, Event, Principal
from contracts.errors import Broken, Rejected
from contracts.events.definition import DefinitionSynced
from contracts.events.run import RunStepQueued, RunStepWaiting, RunStepWriting
from libs.domain import decision, definition, effect, run
from libs.domain.access import holds
from libs.domain.core import Category
from libs.eventstore.port import EventStore, Recorded
from libs.language.model import Bundle
from minutebook.models import (
    ActorView,
    ArtifactView,
    DecisionAnswerView,
    DecisionSummary,
    DecisionView,
    DefinitionSummary,
    DefinitionView,
    EffectView,
    HistoryEntry,
    Page,
    Person,
    RunView,
    TriggerView,
    WaitingFor,
)
from services.api import cursors
from services.api.outline import definition_view, steps_of
from services.api.words import describe

BUNDLES_CACHED_MAX: Final = 200

Histories = Mapping[UUID, tuple[Recorded, ...]]


class Views:
    """Reads of histories and blobs. Callers have judged visibility by the head row before they ask."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._bundles: OrderedDict[tuple[UUID, str], Bundle] = OrderedDict()

    async def run(self, caller: Principal, run_id: UUID) -> RunView:
        """A run with its steps, attempts, open decisions and effects."""
        history = await self._history_of_run(caller.tenant_group, run_id)
        state = _fold(run.CATEGORY, history)
        if state.bundle is None or state.created_at is None:
            raise Broken("run.no_birth", f"the history of run {run_id} does not begin with its creation")
        attempts, decisions, effects, bundle, now = await asyncio.gather(
            self._events("attempt", caller, _named(history, RunStepQueued, "attempt_id")),
            self._events("decision", caller, _named(history, RunStepWaiting, "decision_id")),
            self._events("effect", caller, _named(history, RunStepWriting, "effect_id")),
            self._bundle(caller.tenant_group, state.bundle),
            self._store.now(),
        )
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
                "waiting_for": _waiting(caller, decisions),
                "effects": await self._effects(caller, effects),
            }
        )

    async def history(self, caller: Principal, run_id: UUID, *, limit: int, cursor: str | None) -> Page[HistoryEntry]:
        """The facts of a run and of all that belongs to it, in the order in which they were recorded.

        A fact that was being committed while the pages were read may stand before a cursor: read again to see it.
        """
        own = await self._history_of_run(caller.tenant_group, run_id)
        related = await asyncio.gather(
            self._events("attempt", caller, _named(own, RunStepQueued, "attempt_id")),
            self._events("decision", caller, _named(own, RunStepWaiting, "decision_id")),
            self._events("effect", caller, _named(own, RunStepWriting, "effect_id")),
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
        state = _fold(run.CATEGORY, await self._history_of_run(caller.tenant_group, run_id))
        record = state.step(step)
        if record.artifact_state is None or record.output is None:
            raise Rejected("artifact.not_found", f"step {step!r} of this run has produced no artefact", status=404)
        approved = record.output if record.artifact_state != "proposed" else None
        content = await self._contents(caller.tenant_group, [record.proposed, approved])
        return ArtifactView(
            run_id=run_id,
            step=step,
            state=record.artifact_state,
            revised=approved is not None and approved != record.proposed,
            proposed=_content(content, record.proposed),
            proposed_digest=record.proposed.digest if record.proposed else None,
            approved=_content(content, approved),
            approved_digest=approved.digest if approved else None,
        )

    async def decision(self, caller: Principal, decision_id: UUID) -> DecisionView:
        """A decision with the artefact that it is about."""
        histories = await self._events("decision", caller, [decision_id])
        if decision_id not in histories:
            raise Rejected("decision.not_found", f"there is no decision {decision_id}", status=404)
        state = _fold(decision.CATEGORY, histories[decision_id])
        content = await self._contents(caller.tenant_group, [state.artifact, state.revised])
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
                "artifact": _content(content, state.artifact),
                "artifact_digest": state.artifact.digest if state.artifact else None,
                "revised_artifact": _content(content, state.revised),
                "answer": answer,
                "withdrawn_because": state.withdrawn_because,
            }
        )

    async def decisions(self, caller: Principal, decision_ids: Collection[UUID]) -> Mapping[UUID, DecisionSummary]:
        """Decisions by id, without artefacts."""
        histories = await self._events("decision", caller, decision_ids)
        return {
            decision_id: DecisionSummary.model_validate(
                _decision(caller, decision_id, _fold(decision.CATEGORY, history))
            )
            for decision_id, history in histories.items()
        }

    async def effects(self, caller: Principal, effect_ids: Collection[UUID]) -> Mapping[UUID, EffectView]:
        """Effects by id, with their arguments."""
        views = await self._effects(caller, await self._events("effect", caller, effect_ids))
        return {view.effect_id: view for view in views}

    async def definitions(self, caller: Principal, stream_ids: Collection[UUID]) -> Mapping[UUID, DefinitionSummary]:
        """Workflows by stream."""
        histories = await self._events("definition", caller, stream_ids)
        return {
            stream_id: _definition(current)
            for stream_id, history in histories.items()
            if isinstance(current := _fold(definition.CATEGORY, history).current, DefinitionSynced)
        }

    async def definition(self, caller: Principal, stream_id: UUID, definition_id: str) -> DefinitionView:
        """The version of a workflow that new runs take.

        Raises:
            contracts.errors.Rejected: 404.
        """
        histories = await self._events("definition", caller, [stream_id])
        current = _fold(definition.CATEGORY, histories.get(stream_id, ())).current
        if not isinstance(current, DefinitionSynced):
            raise Rejected("definition.not_found", f"there is no definition {definition_id!r}", status=404)
        bundle = await self._bundle(caller.tenant_group, current.bundle)
        return definition_view(_definition(current), bundle.definition, caller)

    async def _history_of_run(self, tenant_group: UUID, run_id: UUID) -> tuple[Recorded, ...]:
        histories = await self._store.events("run", [run_id], tenant_group=tenant_group)
        if run_id not in histories:
            raise Rejected("run.not_found", f"there is no run {run_id}", status=404)
        return histories[run_id]

    async def _events(self, category: str, caller: Principal, stream_ids: Collection[UUID]) -> Histories:
        if not stream_ids:
            return {}
        return await self._store.events(category, stream_ids, tenant_group=caller.tenant_group)

    async def _effects(self, caller: Principal, histories: Histories) -> tuple[EffectView, ...]:
        states = {effect_id: _fold(effect.CATEGORY, history) for effect_id, history in histories.items()}
        content = await self._contents(caller.tenant_group, [state.arguments for state in states.values()])
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
                    "arguments": _content(content, state.arguments),
                    "declared_at": histories[effect_id][0].event.at,
                    "changed_at": histories[effect_id][-1].event.at,
                }
            )
            for effect_id, state in states.items()
        )

    async def _contents(self, tenant_group: UUID, refs: Iterable[BlobRef | None]) -> Mapping[str, JsonValue]:
        digests = {ref.digest for ref in refs if ref is not None}
        if not digests:
            return {}
        blobs = await self._store.blobs(tenant_group, digests)
        return {digest: json.loads(content) for digest, content in blobs.items()}

    async def _bundle(self, tenant_group: UUID, ref: BlobRef) -> Bundle:
        """A version's content. It never changes, so it is kept."""
        key = (tenant_group, ref.digest)
        if key not in self._bundles:
            blobs = await self._store.blobs(tenant_group, [ref.digest])
            if ref.digest not in blobs:
                raise Broken("blob.missing", f"the content {ref.digest} of a definition is not stored")
            self._bundles[key] = Bundle.model_validate_json(blobs[ref.digest])
        self._bundles.move_to_end(key)
        while len(self._bundles) > BUNDLES_CACHED_MAX:
            self._bundles.popitem(last=False)
        return self._bundles[key]


def _fold(category: Category[Any], history: tuple[Recorded, ...]) -> Any:
    return category.fold(tuple(recorded.event for recorded in history))


def _named(history: Iterable[Recorded], kind: type[Event], field: str) -> list[UUID]:
    """The streams that facts of a run name, each once, in order."""
    return list(dict.fromkeys(getattr(fact.event, field) for fact in history if isinstance(fact.event, kind)))


def _content(contents: Mapping[str, JsonValue], ref: BlobRef | None) -> JsonValue:
    return contents.get(ref.digest) if ref is not None else None


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
    }


def _person(state: run.State | decision.State) -> Person:
    if state.initiated_by is None:
        raise Broken("stream.no_birth", "a history does not begin with its birth")
    return Person(id=state.initiated_by.id, email=state.initiated_by.email)


def _trigger(state: run.State) -> TriggerView | None:
    trigger = state.trigger
    return TriggerView(kind=trigger.kind, key=trigger.key, source=trigger.source) if trigger else None


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
        "artifact_step": state.artifact_step,
        "may_answer": state.status == "open" and holds(caller, state.binding),
    }


def _waiting(caller: Principal, histories: Histories) -> tuple[WaitingFor, ...]:
    states = {decision_id: _fold(decision.CATEGORY, history) for decision_id, history in histories.items()}
    return tuple(
        WaitingFor.model_validate(_decision(caller, decision_id, state))
        for decision_id, state in states.items()
        if state.status == "open"
    )


def _definition(current: DefinitionSynced) -> DefinitionSummary:
    return DefinitionSummary(
        id=current.definition_id,
        name=current.name,
        hash=current.hash,
        enabled=current.enabled,
        synced_at=current.at,
    )


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
