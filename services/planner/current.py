"""The versions that new runs take, as the record has them at this moment."""

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from contracts import ids
from contracts.events.definition import DefinitionSynced
from libs.domain import definition
from libs.eventstore.port import EventStore, Loaded

STREAMS_CACHED_MAX: Final = 1_000

Key = tuple[UUID, str]
"""(tenant group, id of the definition)"""


@dataclass(frozen=True, slots=True)
class _Held:
    """A definition's stream as it was last seen."""

    version: int = 0
    digest: bytes = b""
    state: definition.State = definition.CATEGORY.initial


@dataclass(frozen=True, slots=True)
class Versions:
    """What new runs of a definition take: `current`, or for a share of them the version that is being tried out."""

    state: definition.State
    current: DefinitionSynced

    def of(self, run_id: UUID) -> DefinitionSynced:
        """The version that a new run takes: its id decides, so a start that is repeated takes the same."""
        canary = self.state.canary
        if canary is None or canary.canary_percent is None:
            return self.current
        drawn = int.from_bytes(hashlib.sha256(run_id.bytes).digest()[:4]) % 100
        return canary if drawn < canary.canary_percent else self.current


class CurrentVersions:
    """Reads them for a batch of starts by one query, which tops up what was read before: never an old version."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._held: OrderedDict[UUID, _Held] = OrderedDict()

    async def read(self, wanted: Collection[Key]) -> tuple[datetime, Mapping[Key, Versions]]:
        """Return the database's clock and the versions that each definition has at that moment.

        Definitions that were never synced are absent.
        """
        streams = {ids.definition(*key): key for key in wanted}
        load = await self._store.load("definition", {i: self._of(i).version for i in streams})
        denied = [i for i, loaded in load.streams.items() if self._denies(i, loaded)]
        if denied:
            for stream_id in denied:
                del self._held[stream_id]
            return await self.read(wanted)
        found: dict[Key, Versions] = {}
        for stream_id, loaded in load.streams.items():
            state = self._top_up(stream_id, loaded)
            if isinstance(state.current, DefinitionSynced) and loaded.tenant_group == streams[stream_id][0]:
                found[streams[stream_id]] = Versions(state, state.current)
        return load.now, found

    def _of(self, stream_id: UUID) -> _Held:
        return self._held.get(stream_id, _Held())

    def _denies(self, stream_id: UUID, loaded: Loaded) -> bool:
        """Whether the stream cannot have been as it is held: another database may have taken the place of this one."""
        held = self._of(stream_id)
        return loaded.version < held.version or (loaded.version == held.version and loaded.digest != held.digest)

    def _top_up(self, stream_id: UUID, loaded: Loaded) -> definition.State:
        state = definition.CATEGORY.fold(tuple(fact.event for fact in loaded.events), self._of(stream_id).state)
        if loaded.version:
            self._held[stream_id] = _Held(loaded.version, loaded.digest, state)
            self._held.move_to_end(stream_id)
            while len(self._held) > STREAMS_CACHED_MAX:
                self._held.popitem(last=False)
        return state
