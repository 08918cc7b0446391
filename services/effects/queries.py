"""Which effects concern which runs: read from the head rows, which change with every append."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from libs.postgres.pool import fetch

_DECLARED_OF = "select stream_id, run_id from effect_heads where run_id = any($1::uuid[]) and state = 'declared'"

_RUNS_OF = """
select e.stream_id, e.version, r.state from effect_heads e join run_heads r on r.stream_id = e.run_id
 where e.stream_id = any($1::uuid[]) and e.state = 'declared'
"""


@dataclass(frozen=True, slots=True)
class Held:
    """A declared effect's version, and the state of its run."""

    version: int
    run_state: str


class Queries:
    """Ids name streams of any tenant group: they come from messages, never from callers."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def declared_of(self, run_ids: Collection[UUID]) -> Mapping[UUID, UUID]:
        """The declared effects of these runs, effect → run."""
        return {row["stream_id"]: row["run_id"] for row in await fetch(self._pool, _DECLARED_OF, list(run_ids))}

    async def runs_of(self, effect_ids: Collection[UUID]) -> Mapping[UUID, Held]:
        """What the runs of those of these effects are doing that are still declared."""
        rows = await fetch(self._pool, _RUNS_OF, list(effect_ids))
        return {row["stream_id"]: Held(row["version"], row["state"]) for row in rows}
