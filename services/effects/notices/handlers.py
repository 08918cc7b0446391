"""What notices do with facts and with wakes."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, get_args
from uuid import UUID

from contracts.envelope import Address
from contracts.errors import MinutebookError, Unavailable
from contracts.events.effect import EffectDeclared
from libs.domain.notice import Command, Expire, Look, State
from libs.eventstore.port import Loaded, Recorded, Store
from libs.owner import Item, Owner
from libs.process import actor
from minutebook.models.states import NoticeAbout
from services.effects.notices.desk import Desk, fold
from services.effects.notices.raising import Raising
from services.effects.notices.told import Told, of_decision, of_effect, of_run
from services.effects.notices.ways import Ways

_ACTOR = actor("effects")
_Failures = Mapping[UUID, MinutebookError]

WAITING: Final[Mapping[str, frozenset[str]]] = {
    "decision": frozenset({"open"}),
    "effect": frozenset({"in_doubt"}),
    "run": frozenset({"suspended", "failed"}),
}
"""States that wait for somebody, so that people are told of them however late."""

ABOUT: Final = {
    category: frozenset(about for about in get_args(NoticeAbout) if about.startswith(f"{category}."))
    for category in WAITING
}


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
            told = await self._told(category, await self._heard(category, numbers, {type_}))
        except Unavailable as error:
            return dict.fromkeys(stream_ids, error)
        return await self._raising.raise_([one for one in told if (one.subject, one.number) in numbers])

    async def on_open(self, category: str, stream_ids: Sequence[UUID]) -> _Failures:
        """Messages may have been lost: raise what is missing of what still waits for somebody."""
        try:
            heads = await self._store.heads(category, stream_ids)
            waiting = {(i, head.version) for i, head in heads.items() if head.state in WAITING[category]}
            told = await self._told(category, await self._heard(category, waiting, ABOUT[category]), still_open=True)
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

    async def _heard(
        self, category: str, numbers: Collection[tuple[UUID, int]], abouts: Collection[str]
    ) -> Collection[UUID]:
        """Of these facts the streams whose tenant group has a channel that is about them: mostly there is none."""
        after: dict[UUID, int] = {}
        for stream_id, number in numbers:
            after[stream_id] = min(number - 1, after.get(stream_id, number))
        if not after:
            return ()
        load = await self._store.load(category, after)
        group_of = {i: stream.tenant_group for i, stream in load.streams.items() if stream.tenant_group is not None}
        told_of = {group: await self._raising.abouts(group) for group in set(group_of.values())}
        return [stream_id for stream_id, group in group_of.items() if not told_of[group].isdisjoint(abouts)]

    async def _told(self, category: str, stream_ids: Collection[UUID], *, still_open: bool = False) -> list[Told]:
        """What these streams have to tell; of those that are `still_open` only what they stand in now."""
        if not stream_ids:
            return []
        load = await self._store.load(category, dict.fromkeys(stream_ids, 0))
        histories = [stream.events for stream in load.streams.values()]
        if category == "decision":
            return [one for history in histories for one in of_decision(history)]
        runs = await self._runs_of(load.streams.values()) if category == "effect" else {}
        told: list[Told] = []
        for history in histories:
            found = of_effect(history, runs.get(_run_of(history), ())) if category == "effect" else of_run(history)
            told += _last(found, history) if still_open else found
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
