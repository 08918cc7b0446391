"""Reads concurrency keys: what they say of the runs that wait for them, and how full they are."""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from contracts.base import Event
from contracts.envelope import Address
from contracts.events.admission import (
    AdmissionGranted,
    AdmissionQueued,
    AdmissionRefused,
    AdmissionReturned,
    AdmissionSuperseded,
)
from libs.domain import admission
from libs.eventstore.port import EventStore, Loaded

KEYS_CACHED_MAX: Final = 1_000

Verdict = AdmissionGranted | AdmissionQueued | AdmissionRefused | AdmissionReturned | AdmissionSuperseded


@dataclass(slots=True)
class _Key:
    """A key's stream as it was last seen, with the last fact about each run that has not returned it."""

    version: int = 0
    digest: bytes = b""
    state: admission.State = admission.CATEGORY.initial
    verdicts: dict[UUID, Event] = field(default_factory=dict)


class Admissions:
    """Tops up what was read before by one query per batch: a busy key has a long history."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._keys: OrderedDict[UUID, _Key] = OrderedDict()

    async def verdicts(self, asking: Mapping[UUID, UUID]) -> Mapping[UUID, Event]:
        """Return the last fact about each run under the key that it asked for: run → key. Nothing yet is left out."""
        keys = await self._read(set(asking.values()))
        return {
            run_id: verdict
            for run_id, key_id in asking.items()
            if (verdict := keys[key_id].verdicts.get(run_id)) is not None
        }

    async def states(self, key_ids: Collection[UUID]) -> Mapping[UUID, admission.State]:
        """Return the keys as they are now; one that nobody asked for is in its initial state."""
        return {key_id: key.state for key_id, key in (await self._read(key_ids)).items()}

    async def runs_of(self, facts: Sequence[Address]) -> Mapping[UUID, str | None]:
        """The runs that facts of keys are about, each with the trace of its fact."""
        traces = {(fact.stream_id, fact.version): fact.traceparent for fact in facts}
        after: dict[UUID, int] = {}
        for fact in facts:
            after[fact.stream_id] = min(after.get(fact.stream_id, fact.version), fact.version - 1)
        load = await self._store.load("admission", after)
        return {
            recorded.event.run_id: traces[recorded.stream_id, recorded.version]
            for stream in load.streams.values()
            for recorded in stream.events
            if isinstance(recorded.event, Verdict) and (recorded.stream_id, recorded.version) in traces
        }

    async def _read(self, key_ids: Collection[UUID]) -> Mapping[UUID, _Key]:
        known = {key_id: self._keys.get(key_id) or _Key() for key_id in key_ids}
        load = await self._store.load("admission", {key_id: key.version for key_id, key in known.items()})
        denied = [key_id for key_id, loaded in load.streams.items() if _denies(known[key_id], loaded)]
        if denied:
            for key_id in denied:
                del self._keys[key_id]
            return await self._read(key_ids)
        for key_id, loaded in load.streams.items():
            self._top_up(key_id, known[key_id], loaded)
        return known

    def _top_up(self, key_id: UUID, key: _Key, loaded: Loaded) -> None:
        for recorded in loaded.events:
            key.state = admission.CATEGORY.evolve(key.state, recorded.event)
            match recorded.event:
                case AdmissionReturned(run_id=run_id):
                    key.verdicts.pop(run_id, None)
                case AdmissionGranted() | AdmissionQueued() | AdmissionRefused() | AdmissionSuperseded() as verdict:
                    key.verdicts[verdict.run_id] = verdict
                case _:
                    pass
        key.version, key.digest = loaded.version, loaded.digest
        if loaded.version:
            self._keys[key_id] = key
            self._keys.move_to_end(key_id)
            while len(self._keys) > KEYS_CACHED_MAX:
                self._keys.popitem(last=False)


def _denies(key: _Key, loaded: Loaded) -> bool:
    """Whether the stream cannot have been as it is held: another database may have taken the place of this one."""
    return loaded.version < key.version or (loaded.version == key.version and loaded.digest != key.digest)
