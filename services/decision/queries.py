"""Which decisions concern runs that ended: read from the head rows, which change with every append."""

from collections.abc import Collection
from uuid import UUID

import asyncpg

from libs.postgres.pool import fetch

_OPEN_OF = "select stream_id, run_id from decision_heads where run_id = any($1::uuid[]) and state = 'open'"

_ORPHANED = """
select d.stream_id, d.run_id from decision_heads d join run_heads r on r.stream_id = d.run_id
 where d.stream_id = any($1::uuid[]) and d.state = 'open'
   and r.state in ('cancelled', 'failed', 'completed', 'superseded')
"""


class Queries:
    """Both answer decision → run. Ids name streams of any tenant group: they come from messages, never from callers."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def open_of(self, run_ids: Collection[UUID]) -> dict[UUID, UUID]:
        """The open decisions of these runs."""
        return {row["stream_id"]: row["run_id"] for row in await fetch(self._pool, _OPEN_OF, list(run_ids))}

    async def orphaned(self, decision_ids: Collection[UUID]) -> dict[UUID, UUID]:
        """Which of these decisions are open though their run is over."""
        return {row["stream_id"]: row["run_id"] for row in await fetch(self._pool, _ORPHANED, list(decision_ids))}
