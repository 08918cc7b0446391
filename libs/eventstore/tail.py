"""The whole history in an order that loses nothing: `(era, xid, position)`, below the oldest open transaction."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import asyncpg

from libs.eventstore.mapper import Mapper
from libs.eventstore.people import PostgresPeople
from libs.eventstore.port import Recorded
from libs.eventstore.reading import FACT, SPILLED, fact
from libs.postgres.pool import fetch

PAGE: Final = 500

# Positions are given before commits, so a cursor on position alone passes over what commits later. Facts of an earlier
# era are all committed, and may come from another cluster, whose transaction ids say nothing beside this one's oldest.
# The limit stands in the text: a plan for a limit unknown would sort everything first.
_READ: Final = f"""
select {FACT}, b.content from workflow_history e {SPILLED}
 where (e.era, e.xid, e.position) > ($1::int, $2::text::xid8, $3::bigint)
   and (e.era < (select max(era) from eras) or e.xid < pg_snapshot_xmin(pg_current_snapshot()))
 order by e.era, e.xid, e.position limit"""  # noqa: S608 - our own columns


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """How far a reader has come; the fact at it was read."""

    era: int = 0
    xid: int = 0
    position: int = 0


BEGINNING: Final = Cursor()


def after(recorded: Recorded) -> Cursor:
    """The cursor of a reader that has seen this fact."""
    return Cursor(recorded.era, recorded.xid, recorded.position)


async def page(
    pool: asyncpg.Pool, cursor: Cursor = BEGINNING, *, limit: int = PAGE, mapper: Mapper | None = None
) -> list[Recorded]:
    """Read the next facts in safe order. Fewer than `limit` says that the safe end was reached, for now.

    A long write transaction anywhere in the cluster holds the safe end back.

    Raises:
        contracts.errors.Unavailable: the database does not answer, or a fact is of a newer release.
    """
    rows = await fetch(pool, f"{_READ} {limit:d}", cursor.era, str(cursor.xid), cursor.position)
    known = mapper or Mapper(people=PostgresPeople(pool))
    await known.people.recall(rows)
    return [fact(row, known) for row in rows]


async def tail(
    pool: asyncpg.Pool, cursor: Cursor = BEGINNING, *, limit: int = PAGE, mapper: Mapper | None = None
) -> AsyncIterator[Recorded]:
    """Read on from a cursor to the safe end, page by page."""
    known = mapper or Mapper(people=PostgresPeople(pool))
    while True:
        facts = await page(pool, cursor, limit=limit, mapper=known)
        for recorded in facts:
            yield recorded
        if len(facts) < limit:
            return
        cursor = after(facts[-1])
