"""Work that runners take, on PostgreSQL."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from libs.domain.lifecycle import RUN_ACTIVE
from libs.eventstore.adapter import Adapter
from libs.eventstore.port import Claimed

# Locks are taken in the order of every statement, ready rows before all others and without waiting for them: ready,
# runs, attempts; ready rows are deleted last. Heads are judged as they are once locked, so a requeue that commits while
# this waits is seen and its ready row, which was there already, is not dropped.
_CLAIM: Final = """
with picked as materialized (
  select r.attempt_id, r.queued_at from ready r where $1::text[] is null or r.subject = any($1)
   order by r.priority desc, r.queued_at, r.attempt_id limit $2 for update skip locked),
run as materialized (
  select d.run_id, held.state from (
    select distinct a.run_id from picked p join attempt_heads a on a.stream_id = p.attempt_id order by 1 offset 0) d
  cross join lateral (select h.state from run_heads h where h.stream_id = d.run_id for share of h) held),
attempt as materialized (
  select held.* from (
    select attempt_id from picked where (select count(*) from run) >= 0 order by 1 offset 0) p
  cross join lateral (
    select h.stream_id, h.run_id, h.state, h.claim, h.lease_until from attempt_heads h
     where h.stream_id = p.attempt_id for no key update of h) held),
clock as materialized (select minutebook_now() as now),
taken as (
  update attempt_heads h
     set claim = gen_random_uuid(), lease_until = c.now + $3::interval, wake_at = c.now + $3::interval
    from attempt a join run r on r.run_id = a.run_id and r.state = any($4::text[]) cross join clock c
   where h.stream_id = a.stream_id and a.state = 'queued' and (a.claim is null or a.lease_until <= c.now)
  returning h.stream_id, h.claim, h.lease_until),
done as (
  delete from ready where attempt_id in (select attempt_id from picked) and (select count(*) from taken) >= 0)
select t.stream_id, t.claim, t.lease_until, p.queued_at from taken t join picked p on p.attempt_id = t.stream_id"""

_RENEW: Final = """
with held as materialized (
  select c.stream_id from (
    select * from unnest($1::uuid[], $2::uuid[]) as c(stream_id, claim) order by stream_id offset 0) c
  cross join lateral (
    select 1 from attempt_heads h where h.stream_id = c.stream_id and h.claim = c.claim for no key update of h) held),
clock as materialized (select minutebook_now() as now)
update attempt_heads h set lease_until = c.now + $3::interval, wake_at = c.now + $3::interval
  from held cross join clock c where h.stream_id = held.stream_id
returning h.stream_id"""


class PostgresClaims(Adapter):
    """The port `Claims`."""

    async def claim(self, subjects: Collection[str] | None, *, limit: int, lease: timedelta) -> Sequence[Claimed]:
        rows = await self._fetch(
            _CLAIM,
            None if subjects is None else list(subjects),
            limit,
            lease,
            sorted(RUN_ACTIVE),
        )
        return [Claimed(row["stream_id"], row["claim"], row["lease_until"], row["queued_at"]) for row in rows]

    async def renew(self, claims: Collection[tuple[UUID, UUID]], *, lease: timedelta) -> frozenset[UUID]:
        pairs = list(claims)
        rows = await self._fetch(_RENEW, [pair[0] for pair in pairs], [pair[1] for pair in pairs], lease)
        return frozenset(row["stream_id"] for row in rows)

    async def waiting(self) -> Mapping[str, int]:
        rows = await self._fetch("select subject, count(*)::int as waiting from ready group by subject")
        return {row["subject"]: row["waiting"] for row in rows}
