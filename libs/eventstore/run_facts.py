"""What happened in a run and in all that belongs to it, page by page, in the order of the record."""

from collections.abc import Collection
from typing import Final
from uuid import UUID

import asyncpg

from contracts.base import Event
from libs.eventstore.mapper import Mapper
from libs.eventstore.port import Recorded
from libs.eventstore.reading import FACT, SPILLED, fact
from libs.eventstore.tail import Cursor
from libs.postgres.pool import fetch

_CHILDREN: Final = "".join(
    f" union select stream_id from {category}_heads where run_id = $1"  # noqa: S608 - names of our own
    for category in ("attempt", "decision", "wait", "effect")
)

# The places of all facts are sorted, which is cheap, and the content of one page is read, which is not.
_PAGE: Final = f"""
with streams as materialized (select $1::uuid as stream_id union select unnest($3::uuid[]) {_CHILDREN}),
places as materialized (
  select p.* from streams s
   cross join lateral (
     select e.era, e.xid, e.position, e.stream_id, e.version from workflow_history e
      where e.stream_id = s.stream_id and e.tenant_group = $2
        and (e.era, e.xid, e.position) > ($4::int, $5::text::xid8, $6::bigint) offset 0) p
   order by p.era, p.xid, p.position limit $7)
select e.* from places p
 cross join lateral (
   select {FACT}, b.content from workflow_history e {SPILLED}
    where e.stream_id = p.stream_id and e.version = p.version offset 0) e
 order by p.era, p.xid, p.position"""  # noqa: S608 - our own columns

_BIRTHS: Final = f"""
select e.* from unnest($1::uuid[]) as a(stream_id)
 cross join lateral (
   select {FACT}, b.content from workflow_history e {SPILLED}
    where e.stream_id = a.stream_id and e.version = 1 offset 0) e"""  # noqa: S608 - our own columns


async def facts_of_run(
    pool: asyncpg.Pool,
    run_id: UUID,
    *,
    tenant_group: UUID,
    limit: int,
    after: Cursor,
    also: Collection[UUID] = (),
    mapper: Mapper,
) -> list[tuple[Recorded, Event]]:
    """Return the next facts, each with the first one of its stream; fewer than `limit` at the end, for now.

    `also` are streams that another run brought forth and this one takes over.

    Raises:
        contracts.errors.Unavailable: the database does not answer, or a fact is of a newer release.
    """
    rows = await fetch(pool, _PAGE, run_id, tenant_group, list(also), after.era, str(after.xid), after.position, limit)
    await mapper.people.recall(rows)
    page = [fact(row, mapper) for row in rows]
    firsts = await fetch(pool, _BIRTHS, list({recorded.stream_id for recorded in page}))
    await mapper.people.recall(firsts)
    births = {row["stream_id"]: fact(row, mapper).event for row in firsts}
    return [(recorded, births[recorded.stream_id]) for recorded in page]
