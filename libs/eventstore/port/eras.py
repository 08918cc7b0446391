"""What a restore of the database changes."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Era:
    """An era of the record. Numbers may come again when a backup of an earlier era is restored; moments do not."""

    number: int
    began_at: datetime


class Eras(Protocol):
    """What a restore of the database changes. Each may raise `contracts.errors.Unavailable`."""

    async def era(self) -> Era:
        """The era that appends of this process are of: the one that it found."""
        ...

    async def era_goes_on(self) -> bool:
        """Whether what is appended here may still be written: no other era has begun since this process did."""
        ...

    async def of_earlier_eras(self, run_ids: Collection[UUID]) -> frozenset[UUID]:
        """Those of these runs that began before the current era, or are forks of such: what they wrote is not known."""
        ...
