"""Eras of the memory store, and dumps that it can be set back to."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from contracts.events.run import RunForked
from libs.eventstore.eras import Begun
from libs.eventstore.keyring import Keyring
from libs.eventstore.memory.holding import Holding
from libs.eventstore.port import (
    Era,
)

_HELD: Final = (
    "rows",
    "history",
    "era_number",
    "_began_at",
    "_facts",
    "_streams",
    "_snapshots",
    "_blobs",
    "_ready",
    "_unpublished",
    "_deliveries",
    "_leases",
    "_incarnations",
    "_xid",
)
"""What a dump holds beside the keys of persons. Values in these are never changed, only replaced."""


@dataclass(frozen=True, slots=True)
class Dump:
    """Everything that a store held at one moment."""

    held: Mapping[str, Any]
    keys: Keyring


class MemoryEras(Holding):
    """As `libs.eventstore.eras` has them."""

    async def era(self) -> Era:
        return Era(self.era_number, self._began_at)

    async def era_goes_on(self) -> bool:
        return True

    async def of_earlier_eras(self, run_ids: Collection[UUID]) -> frozenset[UUID]:
        return frozenset(run_id for run_id in run_ids if self._era_of(run_id) < self.era_number)

    def _era_of(self, run_id: UUID) -> int:
        """The era in which a run began, or the run that it was forked from."""
        begun = self._streams.get(run_id)
        if begun is None:
            return self.era_number
        forked = (recorded.event for recorded in begun[1:2] if isinstance(recorded.event, RunForked))
        return min([begun[0].era, *(self._era_of(event.parent) for event in forked)])

    def begin_era(self) -> Begun:
        """Begin a new era, as `libs.eventstore.eras.begin_era` does."""
        is_new = self.era_number == 1 or any(recorded.era == self.era_number for recorded in self._facts)
        self.era_number += is_new
        self._began_at = self.clock
        self._incarnations.clear()
        self._leases.clear()
        return Begun(self.era_number, is_new)

    def dump(self) -> Dump:
        """Return all that is held now, for `restore`."""
        return Dump({name: _copied(getattr(self, name)) for name in _HELD}, self.mapper.people.ring.copy())

    def restore(self, dump: Dump) -> None:
        """Hold what a dump holds, and nothing else. An era is to begin next, before anybody appends."""
        for name, held in dump.held.items():
            setattr(self, name, _copied(held))
        self.mapper.people.ring = dump.keys.copy()


def _copied(held: Any) -> Any:
    """A copy of dicts and lists all the way down to what is never changed."""
    if isinstance(held, dict):
        return {key: _copied(value) for key, value in held.items()}
    return list(held) if isinstance(held, list) else held
