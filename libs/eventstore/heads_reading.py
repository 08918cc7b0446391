"""Reads of head rows, on PostgreSQL."""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

import asyncpg

from libs.eventstore.adapter import Adapter
from libs.eventstore.heads import Heads, heads_of
from libs.eventstore.port import HeadView


class PostgresHeads(Adapter):
    """The port `Heads`."""

    async def heads(self, category: str, stream_ids: Collection[UUID]) -> Mapping[UUID, HeadView]:
        rows = await self._fetch(_view(heads_of(category)) + " where stream_id = any($1::uuid[])", list(stream_ids))
        return {row["stream_id"]: _head(row) for row in rows}

    async def heads_of_runs(
        self, category: str, run_ids: Collection[UUID], *, states: Collection[str]
    ) -> Sequence[HeadView]:
        rows = await self._fetch(
            _view(heads_of(category))
            + " where run_id = any($1::uuid[]) and state = any($2::text[]) order by stream_id",
            list(run_ids),
            sorted(states),
        )
        return [_head(row) for row in rows]

    async def started_by(self, tenant_group: UUID, sources: Collection[str]) -> Sequence[UUID]:
        rows = await self._fetch(
            """
            select stream_id from definition_heads
             where tenant_group = $1 and kind = 'workflow' and state = 'active' and enabled
               and event_sources && $2::text[]
             order by stream_id""",
            tenant_group,
            sorted(sources),
        )
        return [row["stream_id"] for row in rows]


def _view(heads: Heads) -> str:
    """Select a head row with what its category has of these columns."""
    run_id = "run_id" if "run_id" in dict(heads.columns) else "null::uuid as run_id"
    lease = "null::uuid as claim, null::timestamptz as lease_until, true as lease_ended"
    if heads.claimable:
        lease = "claim, lease_until, coalesce(lease_until <= minutebook_now(), true) as lease_ended"
    return f"select stream_id, version, state, {run_id}, {lease} from {heads.table}"  # noqa: S608 - names of our own


def _head(row: asyncpg.Record) -> HeadView:
    return HeadView(
        stream_id=row["stream_id"],
        version=row["version"],
        state=row["state"],
        run_id=row["run_id"],
        claim=row["claim"],
        lease_until=row["lease_until"],
        lease_ended=row["lease_ended"],
    )
