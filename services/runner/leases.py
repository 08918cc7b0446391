"""What the heads say of claims: which still stand, and which leases have ended."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

import asyncpg

from libs.postgres.pool import fetch

_STANDING: Final = """
select h.stream_id
  from unnest($1::uuid[], $2::uuid[]) as c(stream_id, claim)
  join attempt_heads h on h.stream_id = c.stream_id and h.claim = c.claim"""

_LEASES: Final = """
select stream_id, version, state, claim, lease_until, coalesce(lease_until <= minutebook_now(), true) as ended
  from attempt_heads where stream_id = any($1::uuid[])"""


@dataclass(frozen=True, slots=True)
class Lease:
    """The claim on an attempt, None where nobody holds it, and whether its time has passed by the database's clock."""

    attempt_id: UUID
    version: int
    state: str
    claim: UUID | None
    until: datetime | None
    ended: bool


class Leases(Protocol):
    """Reads the operational columns of attempts. Raises `contracts.errors.Unavailable` as the event store does."""

    async def standing(self, claims: Collection[tuple[UUID, UUID]]) -> frozenset[UUID]:
        """The attempts of these (attempt, claim) pairs whose claim is still the current one."""
        ...

    async def of(self, attempt_ids: Collection[UUID]) -> Sequence[Lease]:
        """The leases of attempts; those that do not exist are left out."""
        ...


class PostgresLeases:
    """`Leases` on the event store's own tables."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def standing(self, claims: Collection[tuple[UUID, UUID]]) -> frozenset[UUID]:
        pairs = list(claims)
        rows = await fetch(self._pool, _STANDING, [pair[0] for pair in pairs], [pair[1] for pair in pairs])
        return frozenset(row["stream_id"] for row in rows)

    async def of(self, attempt_ids: Collection[UUID]) -> Sequence[Lease]:
        rows = await fetch(self._pool, _LEASES, list(attempt_ids))
        return [
            Lease(row["stream_id"], row["version"], row["state"], row["claim"], row["lease_until"], row["ended"])
            for row in rows
        ]
