"""What notices do with facts and with wakes."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final
from uuid import UUID

from contracts.envelope import Address
from contracts.errors import MinutebookError, Unavailable
from contracts.events.effect import EffectDeclared
from libs.domain import decision, effect, run
from libs.domain.notice import Command, Expire, Look, State
from libs.eventstore.port import Loaded, Recorded, Store
from libs.owner import Item, Owner
from libs.process import actor
from services.effects.notices.desk import Desk, fold
from services.effects.notices.raising import Raising
from services.effects.notices.told import Told, of_decision, of_effect, of_run
from services.effects.notices.ways import Ways

_ACTOR = actor("effects")
_Failures = Mapping[UUID, MinutebookError]

DOOMED: Final = frozenset({"suspended", "failed"})
"""States of a run that people are told of."""


class Handlers:
    """Plain functions over the raising, the desk and the owner of the category."""

    def __init__(self, owner: Owner[State, Command], store: Store, *, raising: Raising, desk: Desk, ways: Ways) -> None:
        self._owner = owner
        self._store = store
        self._raising = raising
        self._desk = desk
        self._ways = ways

    async def on_facts(self, type_: str, addresses: Sequence[Address]) -> _Failures:
        """Raise what a fact is to be told by, and send what was raised. Failures by stream."""
        stream_ids = dict.fromkeys(address.stream_id for address in addresses)
        category = type_.partition(".")[0]
        if category == "notice":
            return await self._desk.begin(stream_ids)
        numbers = {(address.stream_id, address.version) for address in addresses}
        try:
            told = await self._told(category, await self._wanted(type_, addresses))
        except Unavailable as error:
            return dict.fromkeys(stream_ids, error)
        return await self._raising.raise_([one for one in told if (one.subject, one.number) in numbers])

    async def on_open(self, category: str, stream_ids: Sequence[UUID]) -> _Failures:
        """Messages may have been lost: raise what is missing of what still waits for somebody."""
        try:
            told = await self._told(category, stream_ids, still_open=True)
        except Unavailable as error:
            return dict.fromkeys(stream_ids, error)
        return await self._raising.raise_(told)

    async def on_wake(self, notice_ids: Sequence[UUID]) -> _Failures:
        """A message was lost, a pause has passed, or a process died: begin what is due, end what nobody reports."""
        load = await self._store.load("notice", dict.fromkeys(notice_ids, 0))
        items: list[Item[Command]] = []
        for notice_id, stream in load.streams.items():
            notice = fold(stream)
            command: Command = Look()
            if notice.status == "sending" and stream.tenant_group and not self._desk.trying(notice_id):
                command = Expire(known_again=await self._ways.knows_again(stream.tenant_group, notice.channel_id))
            items.append(Item(stream_id=notice_id, command=command, actor=_ACTOR, causation=notice_id))
        results = await self._owner.handle(items)
        failures = {
            item.stream_id: result
            for item, result in zip(items, results, strict=True)
            if isinstance(result, MinutebookError)
        }
        return {**failures, **await self._desk.begin([i for i in notice_ids if i not in failures])}

    async def _wanted(self, type_: str, addresses: Sequence[Address]) -> Collection[UUID]:
        """The streams of these facts whose tenant group has a channel that is about them: mostly there is none."""
        after: dict[UUID, int] = {}
        for address in addresses:
            after[address.stream_id] = min(address.version - 1, after.get(address.stream_id, address.version))
        load = await self._store.load(type_.partition(".")[0], after)
        group_of = {i: stream.tenant_group for i, stream in load.streams.items() if stream.tenant_group is not None}
        hearing = {
            tenant_group: await self._raising.told_of(tenant_group, type_) for tenant_group in set(group_of.values())
        }
        return [stream_id for stream_id, tenant_group in group_of.items() if hearing[tenant_group]]

    async def _told(self, category: str, stream_ids: Collection[UUID], *, still_open: bool = False) -> list[Told]:
        """What these streams have to tell; of what is `still_open` only what it stands in now."""
        load = await self._store.load(category, dict.fromkeys(stream_ids, 0))
        runs = await self._runs_of(load.streams.values()) if category == "effect" else {}
        told: list[Told] = []
        for stream in load.streams.values():
            facts = tuple(recorded.event for recorded in stream.events)
            match category:
                case "decision":
                    found = of_decision(stream.events)
                    stands = decision.CATEGORY.status(decision.CATEGORY.fold(facts)) == "open"
                case "effect":
                    found = of_effect(stream.events, runs.get(_run_of(stream.events), ()))
                    stands = effect.CATEGORY.status(effect.CATEGORY.fold(facts)) == "in_doubt"
                case _:
                    found = of_run(stream.events)
                    stands = run.CATEGORY.status(run.CATEGORY.fold(facts)) in DOOMED
            if not still_open:
                told += found
            elif stands:
                told += found if category == "decision" else _last(found, stream.events)
        return told

    async def _runs_of(self, effects: Collection[Loaded]) -> Mapping[UUID | None, Sequence[Recorded]]:
        run_ids = {run_id for stream in effects if (run_id := _run_of(stream.events)) is not None}
        load = await self._store.load("run", dict.fromkeys(run_ids, 0))
        return {run_id: stream.events for run_id, stream in load.streams.items()}


def _last(told: Sequence[Told], history: Sequence[Recorded]) -> Sequence[Told]:
    """Of what was told that which the stream stands in now: no fact of the same kind came after it."""
    stops = {"run.suspended", "run.failed", "effect.in_doubt"}
    last = max((recorded.version for recorded in history if recorded.type in stops), default=0)
    return [one for one in told if one.number == last]


def _run_of(history: Sequence[Recorded]) -> UUID | None:
    return history[0].event.run_id if history and isinstance(history[0].event, EffectDeclared) else None
