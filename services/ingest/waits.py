"""What ingest does for the waits of runs: offers them events, looks back for those that open, closes the rest.

An offer reads waits only after its event was committed, a look-back reads events only after its wait was: whichever of
the two came last sees the other, and the gate on the wait lets one event in.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeVar
from uuid import UUID

from contracts import ids
from contracts.base import Actor
from contracts.errors import MinutebookError
from contracts.events.definition import SourceSynced
from contracts.events.inbound import ResumedRun
from libs.domain import definition, inbound, run, wait
from libs.domain.lifecycle import RUN_OPEN
from libs.domain.run.waiting import waits_for
from libs.domain.wait import Arrival, Close, Look, LookBack, Match, State, takes
from libs.eventstore.port import Arrived, Earlier, Load, Store
from libs.eventstore.snapshots import read_states
from libs.language.matching import probes
from libs.owner import Item, Owner, Result
from libs.process import actor

PAGE: Final = 200
"""Events of one look back, and waits of one offer, that are read at a time."""

ARRIVALS_CACHED_MAX: Final = 5_000
ARRIVAL_BYTES_CACHED_MAX: Final = 20_000

_ACTOR: Final = actor("ingest")
_CATEGORY: Final = wait.CATEGORY.name

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Offer:
    """A recorded event, for every wait that it fits. `command_id` is a person's, who had it offered once more."""

    tenant_group: UUID
    arrival: Arrival
    command_id: UUID | None = None
    by: Actor = _ACTOR

    @property
    def causation(self) -> UUID:
        return self.command_id or self.arrival.inbound_id


Taken = tuple[ResumedRun, ...] | MinutebookError
Failures = dict[UUID, MinutebookError]


def arrival_of(inbound_id: UUID, event: inbound.State) -> Arrival:
    """A recorded event as waits judge it."""
    assert event.payload is not None, "a recorded event has its payload"
    return Arrival(
        inbound_id=inbound_id,
        source=event.source,
        external_id=event.external_id,
        event=event.event,
        keys=event.keys,
        payload=event.payload,
    )


class Waits:
    """Plain functions over the owner of the category."""

    def __init__(self, owner: Owner[State, wait.Command], store: Store) -> None:
        self._owner = owner
        self._store = store
        self._seen: OrderedDict[UUID, Arrival] = OrderedDict()

    async def offer(self, offers: Sequence[Offer]) -> list[Taken]:
        """Let every open wait that fits take its event; one result per offer, in order: the runs that took it.

        An offer made again finds what it gave before. Of several events the first is taken.
        """
        asked = await self._store.waits_of_events([_arrived(offer) for offer in offers])
        taken: list[dict[UUID, ResumedRun]] = [{} for _ in offers]
        failed: dict[int, MinutebookError] = {}
        offered: defaultdict[UUID, list[int]] = defaultdict(list)
        for index, wait_ids in enumerate(asked):
            for wait_id in wait_ids:
                offered[wait_id].append(index)
        for page in _pages(sorted(offered)):
            load = await self._store.load(_CATEGORY, dict.fromkeys(page, 0))
            chosen: list[tuple[int, Item[wait.Command]]] = []
            for wait_id in page:
                state = _fold(load, wait_id)
                for index in offered[wait_id]:
                    offer = offers[index]
                    if _took(load, wait_id, offer):
                        taken[index][wait_id] = _resumed(wait_id, state)
                    elif takes(state, offer.arrival):  # one that does not fit must not move the wait's wake
                        chosen.append((index, _offered(wait_id, offer)))
            results = await self._handle([item for _, item in chosen], load)
            for (index, item), result in zip(chosen, results, strict=True):
                if isinstance(result, MinutebookError):
                    if result.code != "append.guarded":  # a run that is over takes nothing
                        failed[index] = result
                elif result.state.inbound_id == offers[index].arrival.inbound_id:
                    taken[index][item.stream_id] = _resumed(item.stream_id, result.state)
        return [failed.get(index) or tuple(found[i] for i in sorted(found)) for index, found in enumerate(taken)]

    async def look_back(self, wait_ids: Collection[UUID]) -> Failures:
        """Let waits that have just opened take the first event that came before them and fits."""
        load = await self._store.load(_CATEGORY, dict.fromkeys(wait_ids, 0))
        opening = {i: state for i in load.streams if (state := _fold(load, i)).status == "opening"}
        found = await self._earlier(load, opening)
        items = [self._item(i, LookBack(found=found.get(i)), causation=i) for i in opening]
        results = await self._handle(items, load)
        failures = _failures(items, results)
        over = [i for i, error in failures.items() if error.code == "append.guarded"]
        return {i: e for i, e in failures.items() if i not in over} | await self._close(over)

    async def _earlier(self, load: Load, opening: Mapping[UUID, State]) -> dict[UUID, Arrival]:
        """For each of these waits the oldest event within the window that it takes, if there is one."""
        windows = await self._windows({state.source for state in opening.values()})
        asked = {
            i: Earlier(group, state.source, _name(state), state.since - windows[state.source])
            for i, state in opening.items()
            if state.since is not None and (group := load.streams[i].tenant_group) is not None
        }
        found: dict[UUID, Arrival] = {}
        while asked:
            pages = dict(zip(asked, await self._store.earlier_events([*asked.values()], limit=PAGE), strict=True))
            arrivals = await self._arrivals(asked, pages)
            for wait_id, page in pages.items():
                fits = next((a for _, i in page if (a := arrivals.get(i)) and takes(opening[wait_id], a)), None)
                if fits is not None:
                    found[wait_id] = fits
                if fits is not None or len(page) < PAGE:
                    del asked[wait_id]
                else:
                    asked[wait_id] = replace(asked[wait_id], after=page[-1])
        return found

    async def _windows(self, sources: Collection[str]) -> Mapping[str, timedelta]:
        """How long before its run's start a wait on each source looks back."""
        streams = {source: ids.source(source) for source in sources}
        load = await self._store.load(definition.CATEGORY.name, dict.fromkeys(streams.values(), 0))
        windows = {}
        for source, stream_id in streams.items():
            events = load.streams[stream_id].events
            declared = definition.CATEGORY.fold(tuple(recorded.event for recorded in events)).current
            seconds = declared.window_seconds if isinstance(declared, SourceSynced) else 0.0
            windows[source] = timedelta(seconds=seconds)
        return windows

    async def _arrivals(
        self, asked: Mapping[UUID, Earlier], pages: Mapping[UUID, Sequence[tuple[datetime, UUID]]]
    ) -> Mapping[UUID, Arrival]:
        wanted: defaultdict[UUID, set[UUID]] = defaultdict(set)
        for wait_id, page in pages.items():
            wanted[asked[wait_id].tenant_group].update(inbound_id for _, inbound_id in page)
        arrivals = {i: self._seen[i] for ids_ in wanted.values() for i in ids_ if i in self._seen}
        for tenant_group, inbound_ids in wanted.items():
            missing = inbound_ids - arrivals.keys()
            found = await self._store.events(inbound.CATEGORY.name, missing, tenant_group=tenant_group)
            for inbound_id, recorded in found.items():
                state = inbound.CATEGORY.fold(tuple(r.event for r in recorded))
                arrivals[inbound_id] = self._remember(arrival_of(inbound_id, state))
        return arrivals

    def _remember(self, arrival: Arrival) -> Arrival:
        """What was recorded never changes, and waits that open together look back over the same events."""
        if arrival.payload.bytes <= ARRIVAL_BYTES_CACHED_MAX:
            self._seen[arrival.inbound_id] = arrival
        while len(self._seen) > ARRIVALS_CACHED_MAX:
            self._seen.popitem(last=False)
        return arrival

    async def close_of_runs(self, run_ids: Collection[UUID]) -> Failures:
        """Close what these runs do not wait for any more: they ended, or the step failed. Failures are by run."""
        heads = await self._store.heads_of_runs(_CATEGORY, run_ids, states=wait.OPEN)
        run_of = {head.stream_id: head.run_id for head in heads if head.run_id is not None}
        failures = await self._close(run_of)
        return {run_of[wait_id]: error for wait_id, error in failures.items()}

    async def look(self, wait_ids: Sequence[UUID]) -> Failures:
        """Waits that are due: one that opens looks back, one that nobody waits for is closed."""
        heads = await self._store.heads(_CATEGORY, wait_ids)
        opening = [i for i, head in heads.items() if head.state == "opening"]
        failures = await self.look_back(opening) if opening else {}
        failures |= await self._close([i for i, head in heads.items() if head.state == "open"])
        items = [self._item(i, Look(), causation=i) for i in heads if i not in opening]
        return failures | _failures(items, await self._owner.handle(items))

    async def _close(self, wait_ids: Collection[UUID]) -> Failures:
        """Close those of these waits that their runs do not wait for any more."""
        if not wait_ids:
            return {}
        load = await self._store.load(_CATEGORY, dict.fromkeys(wait_ids, 0))
        waits = {i: state for i in load.streams if (state := _fold(load, i)).status in wait.OPEN}
        runs = await read_states(self._store, run.CATEGORY, {s.run_id for s in waits.values() if s.run_id is not None})
        items = []
        for wait_id, state in waits.items():
            assert state.run_id is not None, "an open wait has its run"
            _, its = runs[state.run_id]
            if its.status not in RUN_OPEN:
                close = Close(reason=f"the run is over: {its.status}", run_over=True)
            elif not waits_for(its, state.step, wait_id):
                close = Close(reason=f"step {state.step} does not wait any more: {_ending(its, state)}", run_over=False)
            else:
                continue
            items.append(self._item(wait_id, close, causation=state.run_id))
        return _failures(items, await self._handle(items, load))

    async def _handle(self, items: Sequence[Item[wait.Command]], load: Load) -> list[Result[State]]:
        """Carry out commands on waits that were just read."""
        chosen = {item.stream_id: load.streams[item.stream_id] for item in items}
        return await self._owner.handle(items, loaded=Load(load.now, chosen))

    @staticmethod
    def _item(wait_id: UUID, command: wait.Command, *, causation: UUID) -> Item[wait.Command]:
        return Item(stream_id=wait_id, command=command, actor=_ACTOR, causation=causation)


def _arrived(offer: Offer) -> Arrived:
    arrival = offer.arrival
    return Arrived(arrival.inbound_id, offer.tenant_group, arrival.source, probes(arrival.event, arrival.keys))


def _offered(wait_id: UUID, offer: Offer) -> Item[wait.Command]:
    return Item(
        stream_id=wait_id,
        command=Match(arrival=offer.arrival),
        actor=offer.by,
        causation=offer.causation,
        tenant_group=offer.tenant_group,
    )


def _took(load: Load, wait_id: UUID, offer: Offer) -> bool:
    """Whether the wait has this event already; from this very command, where a person gave one."""
    state = _fold(load, wait_id)
    if state.inbound_id != offer.arrival.inbound_id:
        return False
    return offer.command_id is None or load.streams[wait_id].events[-1].metadata.causation == offer.command_id


def _fold(load: Load, wait_id: UUID) -> State:
    return wait.CATEGORY.fold(tuple(recorded.event for recorded in load.streams[wait_id].events))


def _resumed(wait_id: UUID, state: State) -> ResumedRun:
    assert state.run_id is not None, "a wait that took an event has its run"
    return ResumedRun(run_id=state.run_id, step=state.step, wait_id=wait_id)


def _name(state: State) -> str | None:
    """The one event name that the wait asks for, where it asks for one."""
    name = state.match.get("event")
    return name if isinstance(name, str) else None


def _ending(its: run.State, state: State) -> str:
    record = its.step(state.step)
    return f"it failed as {record.failure_class}" if record.status == "failed" else f"it is {record.status}"


def _failures(items: Sequence[Item[wait.Command]], results: Sequence[object]) -> Failures:
    looked = zip(items, results, strict=True)
    return {item.stream_id: result for item, result in looked if isinstance(result, MinutebookError)}


def _pages(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), PAGE):
        yield values[start : start + PAGE]
