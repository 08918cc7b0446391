"""What the effects service does with facts and with wakes."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from contracts.envelope import Address
from contracts.errors import MinutebookError
from contracts.events.run import RunStepWriting
from libs.domain.effect import BACK_LINK_AGAIN, Command, Expire, Rearm, Rest, State
from libs.eventstore.port import Store
from libs.owner import Item, Owner
from libs.process import actor
from services.effects.ledger import Ledger, fold
from services.effects.probes import Probes

_ACTOR = actor("effects")
_Failures = Mapping[UUID, MinutebookError]


class Handlers:
    """Plain functions over the ledger and the owner of the category."""

    def __init__(self, owner: Owner[State, Command], store: Store, ledger: Ledger, probes: Probes) -> None:
        self._owner = owner
        self._store = store
        self._ledger = ledger
        self._probes = probes

    async def on_facts(self, type_: str, addresses: Sequence[Address]) -> _Failures:
        """Begin what was declared, armed again or released; cancel what its run gave up. Failures by stream or run."""
        told = dict.fromkeys((address.stream_id for address in addresses), 0)
        match type_:
            case "effect.declared":
                return await self._ledger.begin(told)
            case "run.step_writing":
                return await self._rearm(addresses)
            case "run.resumed":
                declared = await self._declared_of(told)
                return _by_run(await self._ledger.begin(dict.fromkeys(declared, 0)), declared)
            case "run.cancelled":
                declared = await self._declared_of(told)
                return _by_run(await self._ledger.cancel(dict.fromkeys(declared, "cancelled")), declared)
            case _:
                # A failed run may be tried again: its declared effect stays, and the guard keeps it from being called.
                return {}

    async def _declared_of(self, run_ids: Collection[UUID]) -> Mapping[UUID, UUID]:
        """The declared effects of these runs, effect → run."""
        heads = await self._store.heads_of_runs("effect", run_ids, states={"declared"})
        return {head.stream_id: head.run_id for head in heads if head.run_id is not None}

    async def on_wake(self, _category: str, effect_ids: Sequence[UUID]) -> _Failures:
        """A message was lost, or a process: begin what is declared, doubt what nobody reports any more.

        What is in doubt is looked for at its target, and a back-link that was not sent is tried again.
        """
        load = await self._store.load("effect", dict.fromkeys(effect_ids, 0))
        states = {effect_id: fold(stream) for effect_id, stream in load.streams.items()}
        armed = await self._armed_since(states)
        begun: dict[UUID, int] = {}
        items: list[Item[Command]] = []
        doubted = [effect_id for effect_id, state in states.items() if state.status == "in_doubt"]
        for effect_id, state in states.items():
            if state.status == "in_doubt":
                continue
            if state.status == "declared":
                # It may have to wait for its turn, and must not stay due meanwhile.
                begun[effect_id] = 0
                items.append(self._item(effect_id, Rest(), effect_id))
            elif effect_id in armed:
                begun[effect_id] = armed[effect_id].arm
                items.append(self._item(effect_id, armed[effect_id], effect_id))
            elif state.status == "pending" and not self._ledger.calling(effect_id):
                items.append(self._item(effect_id, Expire(), effect_id))
            else:
                items.append(self._item(effect_id, Rest(), effect_id))
        failures = {**await self._handle(items), **await self._probes.due(load, doubted)}
        ready = {effect_id: arm for effect_id, arm in begun.items() if effect_id not in failures}
        return {**failures, **await self._ledger.begin(ready)}

    async def _armed_since(self, states: Mapping[UUID, State]) -> Mapping[UUID, Rearm]:
        """How the failed ones of these effects are to be tried again that are: nobody else repeats that.

        A write is wanted by its run, a back-link by its own wake.
        """
        failed = {i: state for i, state in states.items() if state.status == "failed" and state.kind == "write"}
        links = {
            i: Rearm(arm=state.arm + 1)
            for i, state in states.items()
            if state.status == "failed"
            and state.kind == "back_link"
            and state.failure_class == "connector_unavailable"
            and state.arm < len(BACK_LINK_AGAIN)
        }
        if not failed:
            return links
        load = await self._store.load("run", {state.run_id: 0 for state in failed.values() if state.run_id is not None})
        facts = (recorded.event for stream in load.streams.values() for recorded in stream.events)
        asked = _asked(event for event in facts if isinstance(event, RunStepWriting) and event.effect_id in failed)
        return {**links, **{i: rearm for i, rearm in asked.items() if rearm.arm > failed[i].arm}}

    async def _rearm(self, addresses: Sequence[Address]) -> _Failures:
        """Steps that write: those with an arm were tried before. The first time the effect's own birth begins it."""
        versions: defaultdict[UUID, set[int]] = defaultdict(set)
        for address in addresses:
            versions[address.stream_id].add(address.version)
        load = await self._store.load("run", {run_id: min(found) - 1 for run_id, found in versions.items()})
        writing: list[RunStepWriting] = []
        run_of: dict[UUID, UUID] = {}
        for run_id, stream in load.streams.items():
            for recorded in stream.events:
                event = recorded.event
                if isinstance(event, RunStepWriting) and recorded.version in versions[run_id] and event.arm > 0:
                    writing.append(event)
                    run_of[event.effect_id] = run_id
        asked = _asked(writing)
        failures = await self._handle(
            [self._item(effect_id, rearm, run_of[effect_id]) for effect_id, rearm in asked.items()]
        )
        ready = {effect_id: rearm.arm for effect_id, rearm in asked.items() if effect_id not in failures}
        return _by_run({**failures, **await self._ledger.begin(ready)}, run_of)

    async def _handle(self, items: Sequence[Item[Command]]) -> dict[UUID, MinutebookError]:
        results = await self._owner.handle(items)
        return {
            item.stream_id: result
            for item, result in zip(items, results, strict=True)
            if isinstance(result, MinutebookError)
        }

    @staticmethod
    def _item(effect_id: UUID, command: Command, causation: UUID) -> Item[Command]:
        return Item(stream_id=effect_id, command=command, actor=_ACTOR, causation=causation)


def _asked(writing: Iterable[RunStepWriting]) -> dict[UUID, Rearm]:
    """What runs asked for last of each effect."""
    asked: dict[UUID, Rearm] = {}
    for event in writing:
        before = asked.get(event.effect_id)
        if before is None or event.arm > before.arm:
            asked[event.effect_id] = Rearm(arm=event.arm, valid_until=event.valid_until)
    return asked


def _by_run(failures: _Failures, run_of: Mapping[UUID, UUID]) -> _Failures:
    """Failures of effects as those of the runs whose facts brought them up."""
    return {run_of[effect_id]: error for effect_id, error in failures.items() if effect_id in run_of}
