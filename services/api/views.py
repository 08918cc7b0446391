"""Details: histories folded with the owners' own `evolve` into the public models."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast
from uuid import UUID

import asyncpg

from contracts import ids
from contracts.base import Event, Principal
from contracts.errors import Broken, Rejected
from contracts.events.effect import EffectInDoubt
from libs.domain import admission, decision, effect, run, wait
from libs.domain.lifecycle import ATTEMPT, EFFECT
from libs.eventstore.port import Loaded, Recorded, Store
from libs.eventstore.run_facts import facts_of_run
from libs.eventstore.snapshots import read_states
from libs.eventstore.tail import BEGINNING, Cursor
from libs.language.model import Bundle, ManualStep
from minutebook.models import (
    ActorView,
    ArtifactView,
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
from services.api.reads import Histories, Reads, content_of, fold
from services.api.standing import waiting_for
from services.api.words import describe

ATTEMPTS_SHOWN_MAX: Final = 500
"""A run with more shows those of its steps' current rounds: the others are in its history, which comes in pages."""

_RunState = run.State
_Awaited = dict[UUID, decision.State | wait.State]
# Under names that no method of `Views` has.


class Views:
    """Reads of runs with all that belongs to them. Callers have judged visibility by the head row before they ask."""

    def __init__(self, store: Store, pool: asyncpg.Pool, definitions: DefinitionViews) -> None:
        self._store = store
        self._pool = pool
        self._reads = Reads(store)
        self._definitions = definitions

    async def run(self, caller: Principal, run_id: UUID) -> RunView:
        """A run with its steps, attempts, what it waits for and its effects."""
        loaded, state = await self._run(caller, run_id)
        if state.bundle is None or state.created_at is None:
            raise Broken("run.no_birth", f"the history of run {run_id} does not begin with its creation")
        attempts, effects, awaited, key, bundle, now = await asyncio.gather(
            self._attempts(caller, run_id, state),
            self._effects_of(caller, run_id, state),
            self._awaited(caller, state),
            self._key(caller, state),
            self._definitions.bundle(caller.tenant_group, state.bundle),
            self._store.now(),
        )
        written = await self._effects(caller, effects)
        return RunView.model_validate(
            {
                **_summary(run_id, state),
                "version": loaded.version,
                "definition_name": bundle.definition.name,
                "trigger": _trigger(state),
                "context": state.context,
                "failure_class": state.failure_class,
                "worked_seconds": max(0.0, state.working_time(now).total_seconds()),
                "steps": steps_of(bundle, state, attempts),
                "waiting_for": waiting_for(caller, run_id, state, awaited, key),
                "effects": tuple(view for view in written if view.kind == "write"),
                "back_links": tuple(view for view in written if view.kind == "back_link"),
            }
        )

    async def failed_steps(self, caller: Principal, run_ids: Collection[UUID]) -> Mapping[UUID, str]:
        """The step at which each of these runs stands still; those that stand at none are left out."""
        found = await read_states(self._store, run.CATEGORY, run_ids, tenant_group=caller.tenant_group)
        return {run_id: step for run_id, (_, state) in found.items() if (step := _failed_step(state)) is not None}

    async def open_steps(self, caller: Principal, run_ids: Collection[UUID]) -> Mapping[UUID, tuple[str, ...]]:
        """The steps that each of these runs has begun and not ended."""
        found = await read_states(self._store, run.CATEGORY, run_ids, tenant_group=caller.tenant_group)
        return {
            run_id: tuple(
                key for key, record in state.steps.items() if record.status not in {"pending", "succeeded", "cancelled"}
            )
            for run_id, (_, state) in found.items()
        }

    async def tasks(self, caller: Principal, summaries: Mapping[UUID, RunSummary]) -> list[TaskItem]:
        """The manual steps of these runs that the caller may complete."""
        states = await read_states(self._store, run.CATEGORY, summaries, tenant_group=caller.tenant_group)
        found: list[TaskItem] = []
        for run_id, (_, state) in states.items():
            waiting = [w for w in waiting_for(caller, run_id, state, {}, None) if isinstance(w, WaitingForPerson)]
            for task in waiting:
                if task.may_complete and state.bundle is not None:
                    bundle = await self._definitions.bundle(caller.tenant_group, state.bundle)
                    found.append(_task(task, bundle, state, summaries[run_id]))
        return found

    async def history(self, caller: Principal, run_id: UUID, *, limit: int, cursor: str | None) -> Page[HistoryEntry]:
        """The facts of a run and of all that belongs to it, in the order in which they were recorded.

        A fact that was being committed while the pages were read may stand before a cursor: read again to see it.
        """
        after = BEGINNING
        if cursor is not None:
            after = Cursor(*cursors.decode(cursor, cursors.count, cursors.count, cursors.count))
        _, state = await self._run(caller, run_id)
        found = await facts_of_run(
            self._pool,
            run_id,
            tenant_group=caller.tenant_group,
            limit=limit + 1,
            after=after,
            also=_writes_of(state),
            mapper=self._store.mapper,
        )
        page = found[:limit]
        return Page(
            items=tuple(_entry(fact, birth) for fact, birth in page),
            next_cursor=cursors.encode(*_place(page[-1][0])) if len(found) > limit else None,
        )

    async def artifact(self, caller: Principal, run_id: UUID, step: str) -> ArtifactView:
        """What a step handed off last.

        Raises:
            contracts.errors.Rejected: 404, the step has produced nothing, or there is no such step.
        """
        _, state = await self._run(caller, run_id)
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

    async def effects(self, caller: Principal, effect_ids: Collection[UUID]) -> Mapping[UUID, EffectView]:
        """Effects by id, with their arguments."""
        views = await self._effects(caller, await self._events("effect", caller, effect_ids))
        return {view.effect_id: view for view in views}

    async def _awaited(self, caller: Principal, state: _RunState) -> _Awaited:
        """The decisions and the waits on events that a run's steps wait for."""
        waiting = [r for r in state.steps.values() if r.status == "waiting"]
        events = {r.open_id for r in waiting if r.open_id is not None and r.waits_on == "event"}
        questions = {r.open_id for r in waiting if r.open_id is not None} - events
        decisions = await self._events("decision", caller, questions)
        waits = await self._events("wait", caller, events)
        return {
            **{stream_id: fold(decision.CATEGORY, facts) for stream_id, facts in decisions.items()},
            **{stream_id: fold(wait.CATEGORY, facts) for stream_id, facts in waits.items()},
        }

    async def _key(self, caller: Principal, state: _RunState) -> admission.State | None:
        """The concurrency key that a held run waits for."""
        if not state.held or state.admission is None:
            return None
        key_id = state.admission.admission_id
        found = await read_states(self._store, admission.CATEGORY, [key_id], tenant_group=caller.tenant_group)
        return found[key_id][1] if key_id in found else None

    async def _run(self, caller: Principal, run_id: UUID) -> tuple[Loaded, _RunState]:
        found = await read_states(self._store, run.CATEGORY, [run_id], tenant_group=caller.tenant_group)
        if run_id not in found:
            raise Rejected("run.not_found", f"there is no run {run_id}", status=404)
        return found[run_id]

    async def _attempts(self, caller: Principal, run_id: UUID, state: _RunState) -> Histories:
        heads = await self._store.heads_of_runs("attempt", [run_id], states=ATTEMPT)
        shown = {head.stream_id for head in heads}
        if len(shown) > ATTEMPTS_SHOWN_MAX:
            shown &= {
                ids.attempt(run_id, key, record.round, number)
                for key, record in state.steps.items()
                for number in range(1, record.attempt + 1)
            }
        return _by_birth(await self._events("attempt", caller, shown))

    async def _effects_of(self, caller: Principal, run_id: UUID, state: _RunState) -> Histories:
        heads = await self._store.heads_of_runs("effect", [run_id], states=EFFECT)
        return _by_birth(
            await self._events("effect", caller, {*(head.stream_id for head in heads), *_writes_of(state)})
        )

    async def _events(self, category: str, caller: Principal, stream_ids: Collection[UUID]) -> Histories:
        return await self._reads.histories(category, caller.tenant_group, stream_ids)

    async def _effects(self, caller: Principal, histories: Histories) -> tuple[EffectView, ...]:
        states = {effect_id: fold(effect.CATEGORY, history) for effect_id, history in histories.items()}
        content = await self._reads.contents(caller.tenant_group, [state.arguments for state in states.values()])
        return tuple(
            EffectView.model_validate(
                {
                    "effect_id": effect_id,
                    "kind": state.kind,
                    "of": state.of,
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
                    "over_at": state.over_at,
                    "arm": state.arm,
                    "doubted_at": _doubted_at(state, histories[effect_id]),
                    "looks": state.looks,
                    "looked_at": state.looked_at,
                    "settled": _settlement(state),
                }
            )
            for effect_id, state in states.items()
        )


def _doubted_at(state: effect.State, history: Sequence[Recorded]) -> datetime | None:
    if state.status != "in_doubt":
        return None
    return next((fact.event.at for fact in reversed(history) if isinstance(fact.event, EffectInDoubt)), None)


def _settlement(state: effect.State) -> dict[str, Any] | None:
    settled = state.settled
    if settled is None:
        return None
    by = ActorView(**settled.by.model_dump())
    return {
        "verdict": settled.verdict,
        "source": settled.source,
        "by": by,
        "at": settled.at,
        "comment": settled.comment,
    }


def _failed_step(state: run.State) -> str | None:
    failed = [key for key, record in state.steps.items() if record.status == "failed"]
    return state.stopped_at if state.stopped_at in failed else next(iter(failed), None)


def _by_birth(histories: Histories) -> Histories:
    return dict(sorted(histories.items(), key=lambda item: _place(item[1][0])))


def _writes_of(state: run.State) -> list[UUID]:
    """The effects that a run's steps stand by: its own, and those that a fork has taken over."""
    return [record.effect_id for record in state.steps.values() if record.effect_id is not None]


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


def _person(state: run.State) -> Person:
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
