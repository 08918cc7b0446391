"""Streams as an owner last saw them: topped up by what has come to them since, and kept where they are long."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from contracts.errors import MinutebookError
from libs.domain.core import Category, replace
from libs.eventstore.port import Append, Appended, EventStore, Load, Loaded, Snapshot
from libs.eventstore.snapshots import Kept, Snapshots, Told, told
from libs.owner.items import Beside, Item
from libs.telemetry.logs import get_logger

S = TypeVar("S")

STATES_CACHED_MAX: Final = 10_000

_log = get_logger("owner")


@dataclass(frozen=True)
class Held(Generic[S]):
    """A stream as it was last seen. `done` are the commands of callers that wrote facts of it: (who, command).

    `kept` is the version of its newest snapshot, as far as is known here.
    """

    state: S
    version: int = 0
    digest: bytes = b""
    wake_at: datetime | None = None
    tenant_group: UUID | None = None
    tenant: UUID | None = None
    traceparent: str | None = None
    done: frozenset[Told] = frozenset()
    kept: int = 0


class States(Generic[S]):
    """The streams of a category that an owner works on, from its memory, its snapshots and the history.

    What `beside` names comes with them, in the same query.
    """

    def __init__(
        self, category: Category[S], store: EventStore, *, beside: Beside[Any, S] | None, snapshot_every: int
    ) -> None:
        self._category = category
        self._store = store
        self._beside = beside
        self._snapshots = Snapshots(category, every=snapshot_every)
        self._cache: OrderedDict[UUID, Held[S]] = OrderedDict()
        self._erasures = store.erasures

    async def load(self, items: Sequence[Item[Any]], given: Load | None = None) -> tuple[Load, dict[UUID, Held[S]]]:
        """Top the cached states up by one query. A state that the history denies is read again from its beginning."""
        stream_ids = [item.stream_id for item in items]
        begun: Mapping[UUID, Kept[S]] = {}
        if given is not None:
            known = {i: Held(self._category.initial) for i in stream_ids}
            load = given
        else:
            known = {i: self._cache.get(i) or Held(self._category.initial) for i in stream_ids}
            load, begun = await self._query(items, known)
            if self._store.erasures != self._erasures:  # states may name who is erased
                self._erasures = self._store.erasures
                self._cache.clear()
                return await self.load(items)
        denied = [i for i, held in known.items() if _denies(load.streams[i], held)]
        if denied:
            _log.warning("history is not the one that was cached", category=self._category.name, streams=len(denied))
            self.forget(denied)
            return await self.load(items)
        for stream_id in known:
            loaded, before = load.streams[stream_id], known[stream_id]
            kept = (begun.get(stream_id) or _kept(before)).above(self._category, loaded.events)
            known[stream_id] = Held(
                state=kept.state,
                version=loaded.version,
                digest=loaded.digest,
                wake_at=loaded.wake_at,
                tenant_group=loaded.tenant_group,
                tenant=loaded.tenant,
                traceparent=kept.traceparent,
                done=kept.done,
                kept=before.kept if loaded.snapshot is None else loaded.snapshot.version,
            )
            self._remember(stream_id, known[stream_id])
        return load, known

    async def _query(
        self, items: Sequence[Item[Any]], known: Mapping[UUID, Held[S]]
    ) -> tuple[Load, Mapping[UUID, Kept[S]]]:
        after = {stream_id: held.version for stream_id, held in known.items()}
        if self._beside is None:
            return await self._snapshots.load(self._store, after)
        beside = {each for item in items for each in self._beside(item.command, known[item.stream_id].state)}
        return await self._snapshots.load(self._store, after, beside=sorted(beside))

    def advance(self, append: Append, won: Appended, state: S) -> None:
        """Hold a stream as an append has left it."""
        held = self._cache.get(append.stream_id) or Held(self._category.initial)
        self._remember(
            append.stream_id,
            replace(
                held,
                state=state,
                version=won.version,
                digest=won.digest,
                wake_at=append.wake_at,
                tenant_group=append.metadata.tenant_group,
                tenant=append.metadata.tenant,
                traceparent=held.traceparent or append.metadata.traceparent,
                done=held.done | told(append.metadata.actor, append.metadata.causation),
            ),
        )

    async def keep(self, stream_ids: Iterable[UUID]) -> None:
        """Keep those that have grown enough. Nobody needs it: when it fails, the next fact tries again."""
        long = {
            i: held
            for i in stream_ids
            if (held := self._cache.get(i)) is not None and held.version - held.kept >= self._snapshots.every
        }
        snapshots = [
            Snapshot(i, held.version, held.tenant_group, held.digest, self._snapshots.write(_kept(held)))
            for i, held in long.items()
            if held.tenant_group is not None
        ]
        if not snapshots:
            return
        try:
            await self._store.keep_snapshots(self._snapshots.schema, snapshots)
        except MinutebookError as error:
            _log.warning("snapshots were not kept", category=self._category.name, code=error.code)
            return
        for i, held in long.items():
            if self._cache.get(i) is held:
                self._cache[i] = replace(held, kept=held.version)

    def forget(self, stream_ids: Iterable[UUID]) -> None:
        """Nothing is known of these streams any more: what was sent may have been written or not."""
        for stream_id in stream_ids:
            self._cache.pop(stream_id, None)

    def _remember(self, stream_id: UUID, held: Held[S]) -> None:
        self._cache[stream_id] = held
        self._cache.move_to_end(stream_id)
        while len(self._cache) > STATES_CACHED_MAX:
            self._cache.popitem(last=False)


def _kept(held: Held[S]) -> Kept[S]:
    return Kept(held.state, held.traceparent, held.done)


def _denies(loaded: Loaded, held: Held[Any]) -> bool:
    """Whether a stream cannot have been as it is held: a database that took another's place may have lost its end."""
    if loaded.version == held.version:
        return loaded.digest != held.digest
    return loaded.version < held.version
