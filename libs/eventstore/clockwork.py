"""What the scheduler asks of PostgreSQL: due wakes, the outbox's leftovers, named leases, the bus's incarnations."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from libs.eventstore.adapter import Adapter
from libs.eventstore.heads import heads_of
from libs.eventstore.port import Due, OutboxToken, Page, Woken, Written

# A repeat that came while ingest recorded the first may have been stored after that removed its row: nobody else would
# ever remove it.
_DUE_DELIVERIES: Final = """
with old as materialized (
  select d.id, d.received_at, exists (select from inbound_heads h where h.stream_id = d.id) as recorded
    from deliveries d where d.received_at <= minutebook_now() - $1::interval order by d.received_at, d.id limit $2),
removed as (delete from deliveries where id in (select id from old where recorded))
select id from old where not recorded order by received_at, id"""


class PostgresClockwork(Adapter):
    """The port `Clockwork`."""

    async def due(self, category: str, *, limit: int, after: tuple[datetime, UUID] | None = None) -> Sequence[Due]:
        heads = heads_of(category)
        page = "" if after is None else "and (wake_at, stream_id) > ($2, $3)"
        rows = await self._fetch(
            f"select stream_id, wake_at from {heads.table}"  # noqa: S608 - a table's name, of our own
            f" where wake_at <= minutebook_now() {page} order by wake_at, stream_id limit $1",
            limit,
            *(after or ()),
        )
        return [Due(category, row["stream_id"], row["wake_at"]) for row in rows]

    async def due_deliveries(self, *, older_than: timedelta, limit: int) -> Sequence[UUID]:
        rows = await self._fetch(
            _DUE_DELIVERIES,
            older_than,
            limit,
        )
        return [row["id"] for row in rows]

    async def unpublished(
        self, *, older_than: timedelta, limit: int
    ) -> Sequence[tuple[OutboxToken, Sequence[Written]]]:
        rows = await self._fetch_facts(
            """
            with old as materialized (
              select era, xid from unpublished where written_at <= minutebook_now() - $1::interval
               order by written_at, era, xid limit $2)
            select o.era, o.xid::text::bigint as xid, e.category, e.stream_id, e.version, e.type,
                   e.metadata::text as metadata
              from (select era, xid, row_number() over () as n from old) o
              left join lateral (
                select * from workflow_history e where e.era = o.era and e.xid = o.xid) e on true
             order by o.n, e.position""",
            older_than,
            limit,
        )
        found: dict[OutboxToken, list[Written]] = {}
        for row in rows:
            written = found.setdefault(OutboxToken(row["era"], row["xid"]), [])
            if row["stream_id"] is not None:
                metadata = self._mapper.read_metadata(row["metadata"])
                written.append(Written(row["category"], row["stream_id"], row["version"], row["type"], metadata))
        return list(found.items())

    async def hold_lease(self, name: str, holder: UUID, *, for_: timedelta) -> bool:
        rows = await self._fetch(
            """
            insert into leases as l (name, holder, until) values ($1, $2, minutebook_now() + $3::interval)
            on conflict (name) do update set holder = excluded.holder, until = excluded.until
             where l.holder = excluded.holder or l.until <= minutebook_now()
            returning 1""",
            name,
            holder,
            for_,
        )
        return bool(rows)

    async def release_lease(self, name: str, holder: UUID) -> None:
        await self._execute("delete from leases where name = $1 and holder = $2", name, holder)

    async def wake_open(
        self, category: str, states: Collection[str], *, limit: int, after: UUID | None = None
    ) -> Woken:
        heads = heads_of(category)
        # Judged again once locked: a stream that was moved on meanwhile has said itself when it must be looked at.
        rows = await self._fetch(
            f"""
            with clock as materialized (select minutebook_now() as now),
            page as materialized (
              select stream_id, state, wake_at from {heads.table}
               where stream_id > $1 order by stream_id limit $2),
            held as materialized (
              select p.stream_id from (
                select stream_id from page cross join clock c
                 where state = any($3::text[]) and (wake_at is null or wake_at > c.now) order by stream_id offset 0) p
              cross join clock c
              cross join lateral (
                select 1 from {heads.table} h
                 where h.stream_id = p.stream_id and h.state = any($3::text[])
                   and (h.wake_at is null or h.wake_at > c.now)
                   for no key update of h) h),
            woken as (
              update {heads.table} h set wake_at = c.now from held cross join clock c
               where h.stream_id = held.stream_id returning 1)
            select (select count(*)::int from woken) as woken, (select count(*)::int from page) as looked,
                   (select stream_id from page order by stream_id desc limit 1) as last""",  # noqa: S608 - a table's name
            after or UUID(int=0),
            limit,
            sorted(states),
        )
        row = rows[0]
        return Woken(row["woken"], row["last"] if row["looked"] == limit else None)

    async def in_states(self, category: str, states: Collection[str], *, limit: int, after: UUID | None = None) -> Page:
        rows = await self._fetch(
            f"select stream_id, state = any($3::text[]) as found from {heads_of(category).table}"  # noqa: S608 - a table's name
            " where stream_id > $1 order by stream_id limit $2",
            after or UUID(int=0),
            limit,
            sorted(states),
        )
        found = tuple(row["stream_id"] for row in rows if row["found"])
        return Page(found, rows[-1]["stream_id"] if len(rows) == limit else None)

    async def incarnations(self) -> Mapping[str, str]:
        rows = await self._fetch("select stream, created from bus_incarnations")
        return {row["stream"]: row["created"] for row in rows}

    async def record_incarnations(self, stamps: Mapping[str, str | None]) -> None:
        await self._execute(
            """
            with given as materialized (
              select * from unnest($1::text[], $2::text[]) as g(stream, created) order by stream),
            forgotten as (
              delete from bus_incarnations where stream in (select stream from given where created is null))
            insert into bus_incarnations(stream, created) select stream, created from given where created is not null
            on conflict (stream) do update set created = excluded.created, recorded_at = minutebook_now()""",
            list(stamps.keys()),
            list(stamps.values()),
        )
