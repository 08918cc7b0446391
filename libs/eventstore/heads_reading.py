"""Reads of head rows, on PostgreSQL."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg

from libs.eventstore.adapter import Adapter
from libs.eventstore.heads import Heads, heads_of
from libs.eventstore.port import Arrived, Earlier, HeadView, LineHead

# One probe of an index for each pair, whatever the statistics say: `offset 0` keeps the planner from joining.
_WAITS_OF_EVENTS: Final = """
select a.n, w.stream_id
  from unnest($1::int[], $2::uuid[], $3::text[], $4::text[]) as a(n, tenant_group, source, probe)
 cross join lateral (
   select w.stream_id from wait_heads w
    where w.tenant_group = a.tenant_group and w.source = a.source and w.probe = a.probe
      and w.state in ('opening', 'open') offset 0) w
union
select a.n, w.stream_id
  from unnest($5::uuid[], $6::uuid[]) with ordinality as a(inbound_id, tenant_group, n)
 cross join lateral (
   select w.stream_id from wait_heads w
    where w.inbound_id = a.inbound_id and w.tenant_group = a.tenant_group offset 0) w
 order by 1, 2"""

_EARLIER_EVENTS: Final = """
select a.n, e.received_at, e.stream_id
  from unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[], $6::uuid[])
       with ordinality as a(tenant_group, source, event, since, after_at, after_id, n)
 cross join lateral (
   select e.received_at, e.stream_id from inbound_heads e
    where e.tenant_group = a.tenant_group and e.source = a.source
      and e.received_at >= greatest(a.since, a.after_at)
      and (a.event is null or e.event = a.event)
      and (a.after_at is null or (e.received_at, e.stream_id) > (a.after_at, a.after_id))
    order by e.received_at, e.stream_id limit $7) e
 order by a.n, e.received_at, e.stream_id"""


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

    async def forks_of(self, run_ids: Collection[UUID], *, states: Collection[str]) -> Sequence[UUID]:
        rows = await self._fetch(
            """
            with recursive forks(stream_id) as (
              select h.stream_id from run_heads h where h.parent = any($1::uuid[])
              union
              select h.stream_id from run_heads h join forks f on h.parent = f.stream_id)
            select stream_id from forks join run_heads h using (stream_id)
             where h.state = any($2::text[]) order by stream_id""",
            list(run_ids),
            sorted(states),
        )
        return [row["stream_id"] for row in rows]

    async def identities(self, tenant_group: UUID, kind: str, *, name: str | None = None) -> Sequence[UUID]:
        rows = await self._fetch(
            """
            select stream_id from identity_heads
             where tenant_group = $1 and kind = $2 and ($3::text is null or name = $3) and state = 'active'
             order by stream_id""",
            tenant_group,
            kind,
            name,
        )
        return [row["stream_id"] for row in rows]

    async def holders(self, tenant_group: UUID, held: Collection[str]) -> Sequence[UUID]:
        rows = await self._fetch(
            """
            select stream_id from identity_heads
             where tenant_group = $1 and kind = 'user' and state = 'active' and holds && $2::text[]
            union
            select stream_id from identity_heads
             where tenant_group = $1 and kind = 'user' and state = 'active' and holds is null
             order by stream_id""",
            tenant_group,
            list(held),
        )
        return [row["stream_id"] for row in rows]

    async def open_decisions(self, tenant_group: UUID) -> Sequence[UUID]:
        rows = await self._fetch(
            "select stream_id from decision_heads where tenant_group = $1 and state = 'open' order by stream_id",
            tenant_group,
        )
        return [row["stream_id"] for row in rows]

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

    async def declared(self, tenant_group: UUID, kind: str) -> Sequence[UUID]:
        rows = await self._fetch(
            "select stream_id from definition_heads where tenant_group = $1 and kind = $2 order by stream_id",
            tenant_group,
            kind,
        )
        return [row["stream_id"] for row in rows]

    async def waits_of_events(self, arrived: Sequence[Arrived]) -> Sequence[Sequence[UUID]]:
        pairs = [(n, event, probe) for n, event in enumerate(arrived, 1) for probe in event.probes]
        rows = await self._fetch(
            _WAITS_OF_EVENTS,
            [n for n, _, _ in pairs],
            [event.tenant_group for _, event, _ in pairs],
            [event.source for _, event, _ in pairs],
            [probe for _, _, probe in pairs],
            [event.inbound_id for event in arrived],
            [event.tenant_group for event in arrived],
        )
        found: list[list[UUID]] = [[] for _ in arrived]
        for row in rows:
            found[row["n"] - 1].append(row["stream_id"])
        return found

    async def earlier_events(
        self, asked: Sequence[Earlier], *, limit: int
    ) -> Sequence[Sequence[tuple[datetime, UUID]]]:
        rows = await self._fetch(
            _EARLIER_EVENTS,
            [each.tenant_group for each in asked],
            [each.source for each in asked],
            [each.event for each in asked],
            [each.since for each in asked],
            [each.after[0] if each.after else None for each in asked],
            [each.after[1] if each.after else None for each in asked],
            limit,
        )
        found: list[list[tuple[datetime, UUID]]] = [[] for _ in asked]
        for row in rows:
            found[row["n"] - 1].append((row["received_at"], row["stream_id"]))
        return found

    async def scheduled(self) -> Sequence[UUID]:
        rows = await self._fetch("select stream_id from definition_heads where schedules > 0 order by stream_id")
        return [row["stream_id"] for row in rows]

    async def lines(self, definitions: Collection[tuple[UUID, str]] | None = None) -> Sequence[LineHead]:
        columns = "l.stream_id, l.tenant_group, l.definition_id, l.state"
        if definitions is None:
            rows = await self._fetch(
                f"select {columns} from schedule_heads l where l.state <> 'retired' order by l.stream_id"  # noqa: S608
            )
        else:
            rows = await self._fetch(
                f"""
                select {columns} from schedule_heads l
                  join (select distinct * from unnest($1::uuid[], $2::text[]) as d(tenant_group, definition_id)) d
                 using (tenant_group, definition_id) order by l.stream_id""",  # noqa: S608 - our own columns
                [group for group, _ in definitions],
                [definition_id for _, definition_id in definitions],
            )
        return [LineHead(**row) for row in rows]


def _view(heads: Heads) -> str:
    """Select a head row with what its category has of these columns."""
    run_id = "run_id" if "run_id" in dict(heads.columns) else "null::uuid as run_id"
    lease = "null::uuid as claim, null::timestamptz as lease_until, true as lease_ended"
    if heads.claimable:
        lease = "claim, lease_until, coalesce(lease_until <= minutebook_now(), true) as lease_ended"
    finished = "finished_at" if "finished_at" in dict(heads.columns) else "null::timestamptz as finished_at"
    return f"select stream_id, version, state, {run_id}, {lease}, {finished} from {heads.table}"  # noqa: S608 - names of our own


def _head(row: asyncpg.Record) -> HeadView:
    return HeadView(
        stream_id=row["stream_id"],
        version=row["version"],
        state=row["state"],
        run_id=row["run_id"],
        claim=row["claim"],
        lease_until=row["lease_until"],
        lease_ended=row["lease_ended"],
        finished_at=row["finished_at"],
    )
