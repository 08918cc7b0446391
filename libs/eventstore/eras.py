"""Eras: a restored database begins a new one, and nobody who knew the one before appends to it any more.

What was written after the point that was restored is lost, and nobody can say what it was. So a process appends in the
era that it found and in no other, and writes to the outside of runs that are older than the era begin in doubt.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import asyncpg

from contracts.errors import Broken, Unavailable
from libs.eventstore.adapter import Adapter
from libs.eventstore.port import Era
from libs.postgres.errors import translated
from libs.postgres.pool import readable

ENDED: Final = "era.ended"
"""The code of what is refused to a process that knows an earlier era."""

# The bus is forgotten with it, so that everything open is woken; and nobody leads, so that it is woken at once. An era
# in which nothing was written is as good as a new one: who repeats the command begins no second one.
_BEGIN: Final = """
with newest as materialized (select era from eras order by era desc limit 1 for update),
begun as (
  insert into eras(era, reason) select n.era + 1, $1 from newest n
   where n.era = 1 or exists (select from workflow_history e where e.era = n.era)
  returning era),
renewed as (
  update eras e set began_at = clock_timestamp(), reason = $1 from newest n
   where e.era = n.era and not exists (select from begun)),
forgotten as (delete from bus_incarnations),
vacant as (delete from leases)
select coalesce((select era from begun), n.era) as era, exists (select from begun) as is_new from newest n"""

# A fork writes what its parent would have written, so it is as old as that one is.
_EARLIER: Final = """
with recursive line(asked, run_id) as (
  select r.run_id, r.run_id from unnest($1::uuid[]) as r(run_id)
   union
  select l.asked, h.parent from line l join run_heads h on h.stream_id = l.run_id
   where h.parent is not null
     and exists (select from workflow_history f
                  where f.stream_id = l.run_id and f.version = 2 and f.type = 'run.forked'))
select distinct l.asked from line l
  join workflow_history e on e.stream_id = l.run_id and e.version = 1 where e.era < $2"""


@dataclass(frozen=True, slots=True)
class Begun:
    """The era that is current now. `is_new` is false when nothing had been written in it yet."""

    number: int
    is_new: bool


async def begin_era(dsn: str, *, reason: str) -> Begun:
    """Begin a new era in one statement, as the owner of the schema. Repeated before anything is written it adds none.

    Raises:
        contracts.errors.Unavailable: the database does not answer.
        contracts.errors.Broken: it is no migrated database, or this login may not begin eras.
        contracts.errors.Rejected: ``settings.invalid``, the DSN cannot be read.
    """
    with translated():
        with readable():
            connection = await asyncpg.connect(dsn)
        try:
            row = await connection.fetchrow(_BEGIN, reason)
        finally:
            await connection.close()
    if row is None:
        raise Broken("era.none", "the database has no era: run `minutebook migrate` on it first")
    return Begun(row["era"], row["is_new"])


class PostgresEras(Adapter):
    """The port `Eras`, and the era that this process appends in: the one that it found when it first asked."""

    _era: Era | None = None

    async def era(self) -> Era:
        if self._era is None:
            self._era = await self._newest_era()
        return self._era

    async def era_goes_on(self) -> bool:
        return await self.era() == await self._newest_era()

    async def of_earlier_eras(self, run_ids: Collection[UUID]) -> frozenset[UUID]:
        era = await self.era()
        if era.number == 1 or not run_ids:
            return frozenset()
        rows = await self._fetch(_EARLIER, list(run_ids), era.number)
        return frozenset(row["asked"] for row in rows)

    async def _newest_era(self) -> Era:
        row = await self._fetchrow("select era, began_at from eras order by era desc limit 1")
        assert row is not None, "the first migration begins the first era"
        return Era(row["era"], row["began_at"])


def ended(era: Era) -> Unavailable:
    """What a process is told that still lives in an era before the newest one."""
    return Unavailable(
        ENDED,
        f"era {era.number} of the record has ended: its database was restored; this process must be started again",
    )
