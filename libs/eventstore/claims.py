"""Work that runners take, on PostgreSQL."""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

import asyncpg

from contracts.errors import MinutebookError
from libs.domain.lifecycle import RUN_ACTIVE
from libs.eventstore.adapter import Adapter
from libs.eventstore.mapper import Mapper
from libs.eventstore.port import Claimed, Loaded
from libs.eventstore.reading import FACT, SPILLED, fact

# Locks are taken in the order of every statement, ready rows before all others and without waiting for them: ready,
# runs, attempts; ready rows are deleted last. Heads are judged as they are once locked, so a requeue that commits while
# this waits is seen and its ready row, which was there already, is not dropped. Streams and requests are read as they
# were when the statement began: whose head has gone on since is told by its version. `is true` keeps a subquery from
# becoming a join: nothing is known of its size, so each row would look through all of it.
_CLAIM: Final = f"""
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
    from attempt a cross join clock c
   where h.stream_id = a.stream_id and a.state = 'queued' and (a.claim is null or a.lease_until <= c.now)
     and (a.run_id in (select r.run_id from run r where r.state = any($4::text[]))) is true
  returning h.stream_id, h.claim, h.lease_until, h.wake_at, h.version, h.digest, h.tenant_group, h.tenant),
done as (
  delete from ready where attempt_id in (select attempt_id from picked) and (select count(*) from taken) >= 0)
select t.stream_id as attempt_id, t.claim, t.lease_until, p.queued_at, t.wake_at, t.version as head_version,
       t.digest as head_digest, t.tenant_group as head_group, t.tenant as head_tenant, e.*
  from taken t join picked p on p.attempt_id = t.stream_id
  left join lateral (
    select {FACT}, b.content, r.content as request from workflow_history e {SPILLED}
      left join blobs r on e.version = 1 and r.tenant_group = e.tenant_group
                       and r.digest = decode(e.payload->'request'->>'digest', 'hex')
     where e.stream_id = t.stream_id and e.category = 'attempt' offset 0) e on true
 order by p.queued_at, t.stream_id, e.version"""  # noqa: S608 - columns of our own

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
        rows = await self._fetch_facts(
            _CLAIM,
            None if subjects is None else list(subjects),
            limit,
            lease,
            sorted(RUN_ACTIVE),
        )
        streams: dict[UUID, list[asyncpg.Record]] = {}
        for row in rows:
            streams.setdefault(row["attempt_id"], []).append(row)
        return [
            Claimed(
                attempt_id=attempt_id,
                claim=found[0]["claim"],
                lease_until=found[0]["lease_until"],
                queued_at=found[0]["queued_at"],
                stream=_stream(found, self._mapper),
                request=found[0]["request"],
            )
            for attempt_id, found in streams.items()
        ]

    async def renew(self, claims: Collection[tuple[UUID, UUID]], *, lease: timedelta) -> frozenset[UUID]:
        pairs = list(claims)
        rows = await self._fetch(_RENEW, [pair[0] for pair in pairs], [pair[1] for pair in pairs], lease)
        return frozenset(row["stream_id"] for row in rows)

    async def waiting(self) -> Mapping[str, int]:
        rows = await self._fetch("select subject, count(*)::int as waiting from ready group by subject")
        return {row["subject"]: row["waiting"] for row in rows}


def _stream(rows: Sequence[asyncpg.Record], mapper: Mapper) -> Loaded | None:
    """A claimed attempt as these rows have it; None where they are not all of it, or hold what cannot be read here.

    The claim stands either way: whoever asks for the stream itself is told what is wrong with it.
    """
    head = rows[0]
    if rows[-1]["version"] != head["head_version"]:
        return None
    try:
        events = tuple(fact(row, mapper) for row in rows)
    except MinutebookError:
        return None
    return Loaded(
        stream_id=head["attempt_id"],
        version=head["head_version"],
        digest=head["head_digest"],
        wake_at=head["wake_at"],
        tenant_group=head["head_group"],
        tenant=head["head_tenant"],
        events=events,
    )
