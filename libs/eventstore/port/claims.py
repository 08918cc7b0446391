"""The queue of work: the runners' side."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from libs.eventstore.port.read import Loaded


@dataclass(frozen=True, slots=True)
class Claimed:
    """An attempt that this runner holds until `lease_until`, unless it renews. `queued_at` is when it became ready.

    `stream` is the whole attempt, and `request` the content that its birth names; None where the claim could not see
    them as they are now.
    """

    attempt_id: UUID
    claim: UUID
    lease_until: datetime
    queued_at: datetime
    stream: Loaded | None = None
    request: bytes | None = None


class Claims(Protocol):
    """Work that runners take: `ready` rows, claims with a nonce, leases."""

    async def claim(self, subjects: Collection[str] | None, *, limit: int, lease: timedelta) -> Sequence[Claimed]:
        """Take ready attempts (`skip locked`, by priority then age) whose head is queued and whose run is active.

        `None` takes every subject. Rows whose attempt or run does not fit any more are dropped. The attempt's
        `wake_at` becomes the end of the lease.
        """
        ...

    async def renew(self, claims: Collection[tuple[UUID, UUID]], *, lease: timedelta) -> frozenset[UUID]:
        """Prolong (attempt, claim) pairs in one statement; returns the attempts that are still held."""
        ...

    async def waiting(self) -> Mapping[str, int]:
        """How many ready rows stand under each subject."""
        ...
