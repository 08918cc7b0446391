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
TURNED_AWAY_MAX: Final = 2_000
"""How many runs that a key refused or superseded are remembered; for one before them its history is read again."""

Verdict = AdmissionGranted | AdmissionQueued | AdmissionRefused | AdmissionReturned | AdmissionSuperseded


@dataclass(slots=True)
class _Key:
    """A key's stream as it was last seen, with the last fact about each run that has not returned it.

    `admitted` work or wait, so they are as many as the key allows; those `turned_away` only grow in number.
    """

    version: int = 0
    digest: bytes = b""
    state: admission.State = admission.CATEGORY.initial
    admitted: dict[UUID, Event] = field(default_factory=dict)
    turned_away: OrderedDict[UUID, Event] = field(default_factory=OrderedDict)
    forgotten: bool = False

    def verdict(self, run_id: UUID) -> Event | None:
        return self.admitted.get(run_id) or self.turned_away.get(run_id)

    def take(self, fact: Event) -> None:
        self.state = admission.CATEGORY.evolve(self.state, fact)
        match fact:
            case AdmissionReturned(run_id=run_id):
                self.admitted.pop(run_id, None)
            case AdmissionGranted(run_id=run_id) | AdmissionQueued(run_id=run_id):
                self.admitted[run_id] = fact
            case AdmissionRefused(run_id=run_id) | AdmissionSuperseded(run_id=run_id):
                self.admitted.pop(run_id, None)
                self.turned_away[run_id] = fact
                if len(self.turned_away) > TURNED_AWAY_MAX:
                    self.turned_away.popitem(last=False)
                    self.forgotten = True
            case _:
                pass


class Admissions:
    """Tops up what was read before by one query per batch: a busy key has a long history."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._keys: OrderedDict[UUID, _Key] = OrderedDict()

    async def verdicts(self, asking: Mapping[UUID, UUID]) -> Mapping[UUID, Event]:
        """Return the last fact about each run under the key that it asked for: run → key. Nothing yet is left out."""
        keys = await self._read(set(asking.values()))
        verdicts: dict[UUID, Event] = {}
        for run_id, key_id in asking.items():
            verdict = keys[key_id].verdict(run_id)
            if verdict is None and keys[key_id].forgotten:
                verdict = await self._searched(key_id, run_id)
            if verdict is not None:
                verdicts[run_id] = verdict
        return verdicts

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

    async def _searched(self, key_id: UUID, run_id: UUID) -> Event | None:
        """The last fact about a run in the whole history of a key."""
        load = await self._store.load("admission", {key_id: 0})
        facts = [recorded.event for recorded in load.streams[key_id].events]
        return next((fact for fact in reversed(facts) if isinstance(fact, Verdict) and fact.run_id == run_id), None)

    async def _read(self, key_ids: Collection[UUID]) -> Mapping[UUID, _Key]:
        known = {key_id: self._keys.get(key_id) or _Key() for key_id in key_ids}
        asked = {key_id: (key.version, key.digest) for key_id, key in known.items()}
        load = await self._store.load("admission", {key_id: version for key_id, (version, _) in asked.items()})
        denied = [key_id for key_id, loaded in load.streams.items() if _denies(asked[key_id], loaded)]
        if denied:
            for key_id in denied:
                self._keys.pop(key_id, None)
            return await self._read(key_ids)
        for key_id, loaded in load.streams.items():
            self._top_up(key_id, known[key_id], loaded)
        return known

    def _top_up(self, key_id: UUID, key: _Key, loaded: Loaded) -> None:
        """Take what is new. Another batch may have taken it meanwhile."""
        for recorded in loaded.events:
            if recorded.version > key.version:
                key.take(recorded.event)
                key.version, key.digest = recorded.version, recorded.digest
        if key.version:
            self._keys[key_id] = key
            self._keys.move_to_end(key_id)
            while len(self._keys) > KEYS_CACHED_MAX:
                self._keys.popitem(last=False)


def _denies(asked: tuple[int, bytes], loaded: Loaded) -> bool:
    """Whether the stream cannot have been as it was held: another database may have taken the place of this one."""
    version, digest = asked
    return loaded.version < version or (loaded.version == version and loaded.digest != digest)
