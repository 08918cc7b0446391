"""The versions that new runs take, as the record has them at this moment."""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
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


class CurrentVersions:
    """Reads them for a batch of starts by one query, which tops up what was read before: never an old version."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._held: OrderedDict[UUID, _Held] = OrderedDict()

    async def read(self, wanted: Collection[Key]) -> Mapping[Key, DefinitionSynced]:
        """Return the version that each definition has now; those that were never synced are absent."""
        streams = {ids.definition(*key): key for key in wanted}
        load = await self._store.load("definition", {i: self._of(i).version for i in streams})
        denied = [i for i, loaded in load.streams.items() if self._denies(i, loaded)]
        if denied:
            for stream_id in denied:
                del self._held[stream_id]
            return await self.read(wanted)
        found: dict[Key, DefinitionSynced] = {}
        for stream_id, loaded in load.streams.items():
            current = self._top_up(stream_id, loaded).current
            if isinstance(current, DefinitionSynced) and loaded.tenant_group == streams[stream_id][0]:
                found[streams[stream_id]] = current
        return found

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
