"""Settles who works under a concurrency key: when runs ask, when they are over, and when something was lost.

A message only names runs. Whether one asks or is over is read from its head, which guards what is written.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol
from uuid import UUID

from contracts.envelope import Address
from contracts.errors import Conflict, MinutebookError
from contracts.events.run import RunAdmissionRequested, RunAdmissionReturned, RunCreated
from libs.domain import admission
from libs.domain.admission import Settle, State, Wanted
from libs.domain.lifecycle import RUN_OPEN
from libs.eventstore.port import EventStore, Heads, HeadView, Load, Loaded
from libs.eventstore.snapshots import read_states
from libs.ids import mint
from libs.owner import Item, Owner, Publisher
from libs.process import actor

SETTLED_AGAIN_MAX: Final = 8
"""How often runs are looked at again at once because one of them began or ended meanwhile."""

_ACTOR: Final = actor("scheduler")


class AdmissionStore(EventStore, Heads, Protocol):
    """Streams and the heads of runs."""


@dataclass(frozen=True, slots=True)
class _Key:
    """An admission stream, and whose it is."""

    admission_id: UUID
    tenant_group: UUID
    tenant: UUID


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a run said last of its place: that it wants one (`wanted`), or only that it gave it back."""

    key: _Key
    wanted: Wanted | None


class Admissions:
    """The owner of `admission`."""

    def __init__(self, store: AdmissionStore, publisher: Publisher) -> None:
        self._store = store
        self._owner: Owner[State, Settle] = Owner(
            admission.CATEGORY, admission.decide, store=store, publisher=publisher, prepare=self._prepare
        )

    async def on_facts(self, type_: str, facts: Sequence[Address]) -> Mapping[UUID, MinutebookError]:
        """Runs asked for a place, or gave theirs back. Failures are by run."""
        if type_ == "run.admission_requested":
            return await self.look({fact.stream_id for fact in facts})
        # Of a return only its own fact is read, and what followed: a run that goes on asks by a fact that comes too.
        load = await self._store.load("run", {fact.stream_id: fact.version - 1 for fact in facts})
        asked = _asked(load.streams.values())
        return await self._settle({run_id: replace(each, wanted=None) for run_id, each in asked.items()})

    async def on_wake(self, admission_ids: Sequence[UUID]) -> Mapping[UUID, MinutebookError]:
        """A message may have been lost: see whether those that hold a place or wait for one are over. By admission."""
        found = await read_states(self._store, admission.CATEGORY, admission_ids)
        known: dict[UUID, tuple[_Key, State]] = {}
        for stream_id, (loaded, state) in found.items():
            if loaded.tenant_group is not None and loaded.tenant is not None:
                known[stream_id] = _Key(stream_id, loaded.tenant_group, loaded.tenant), state
        asked = {run_id: _Asked(key, None) for key, state in known.values() for run_id in _runs(state)}
        failures = await self._settle(asked)
        # One that nobody holds or wants has nothing to say; its wake passes all the same.
        await self._owner.handle([_item(key, Settle()) for key, state in known.values() if not _runs(state)])
        return {asked[run_id].key.admission_id: failure for run_id, failure in failures.items()}

    async def look(self, run_ids: Collection[UUID]) -> Mapping[UUID, MinutebookError]:
        """See what these runs ask for, by their histories. Failures are by run."""
        load = await self._store.load("run", dict.fromkeys(run_ids, 0))
        return await self._settle(_asked(load.streams.values()))

    async def _settle(self, asked: Mapping[UUID, _Asked]) -> dict[UUID, MinutebookError]:
        """Settle runs by their heads as they are, and again when these were others by the time of the statement."""
        failures: dict[UUID, MinutebookError] = {}
        todo = dict(asked)
        for _ in range(SETTLED_AGAIN_MAX):
            if not todo:
                return failures
            by_key: defaultdict[_Key, list[UUID]] = defaultdict(list)
            for run_id, each in todo.items():
                by_key[each.key].append(run_id)
            heads = await self._store.heads("run", list(todo))
            items = [_item(key, _command(runs, todo, heads)) for key, runs in by_key.items()]
            results = await self._owner.handle(items)
            todo = {}
            for runs, result in zip(by_key.values(), results, strict=True):
                if isinstance(result, MinutebookError) and result.code == "append.guarded":
                    todo |= {run_id: asked[run_id] for run_id in runs}
                elif isinstance(result, MinutebookError):
                    failures |= dict.fromkeys(runs, result)
        restless = Conflict("admission.restless", f"runs under the key changed {SETTLED_AGAIN_MAX} times in a row")
        return failures | dict.fromkeys(todo, restless)

    async def _prepare(
        self, batch: Sequence[tuple[Item[Settle], State, UUID | None]], _load: Load
    ) -> Sequence[Settle | MinutebookError]:
        """Say of keys that keep only their newest when those asked that wait already."""
        waiting = {
            run_id
            for item, state, _ in batch
            if any(wanted.mode == "coalesce" for wanted in item.command.wanted)
            for run_id in state.queued
        }
        if not waiting:
            return [item.command for item, _, _ in batch]
        load = await self._store.load("run", dict.fromkeys(waiting, 0))
        asked_at = {i: each.wanted.at for i, each in _asked(load.streams.values()).items() if each.wanted is not None}
        return [replace(item.command, asked_at=asked_at) for item, _, _ in batch]


def _asked(runs: Collection[Loaded]) -> dict[UUID, _Asked]:
    """What each run asked for last, of those that asked for anything."""
    found: dict[UUID, _Asked] = {}
    for run in runs:
        if run.tenant_group is None or run.tenant is None:
            continue
        definition_id = ""
        for fact in run.events:
            match fact.event:
                case RunCreated() as created:
                    definition_id = created.definition_id
                case RunAdmissionRequested() as event:
                    key = _Key(event.admission_id, run.tenant_group, run.tenant)
                    found[run.stream_id] = _Asked(key, _wanted(run.stream_id, definition_id, event))
                case RunAdmissionReturned() as event:
                    found[run.stream_id] = _Asked(_Key(event.admission_id, run.tenant_group, run.tenant), None)
    return found


def _wanted(run_id: UUID, definition_id: str, event: RunAdmissionRequested) -> Wanted:
    return Wanted(
        run_id=run_id,
        at=event.at,
        definition_id=definition_id,
        key=event.key,
        limit=event.limit,
        mode=event.mode,
        max_queued=event.max_queued,
        working=event.working,
    )


def _command(runs: Sequence[UUID], asked: Mapping[UUID, _Asked], heads: Mapping[UUID, HeadView]) -> Settle:
    """What the heads say of runs under one key. One that gave its place back and goes on will ask by another fact."""
    open_ = {run_id for run_id in runs if run_id in heads and heads[run_id].state in RUN_OPEN}
    return Settle(
        wanted=tuple(wanted for run_id in runs if run_id in open_ and (wanted := asked[run_id].wanted) is not None),
        over=frozenset(run_id for run_id in runs if run_id in heads and run_id not in open_),
    )


def _runs(state: State) -> tuple[UUID, ...]:
    return (*state.holders, *state.queued)


def _item(key: _Key, command: Settle) -> Item[Settle]:
    return Item(
        stream_id=key.admission_id,
        command=command,
        actor=_ACTOR,
        causation=mint(),
        tenant_group=key.tenant_group,
        tenant=key.tenant,
    )
