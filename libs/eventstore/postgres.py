"""The event store on PostgreSQL: loading and appending."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final
from uuid import UUID

import asyncpg

from contracts.errors import Unavailable
from libs.eventstore.adapter import UNNAMED, digest_bytes
from libs.eventstore.arguments import arguments, shape_of
from libs.eventstore.claims import PostgresClaims
from libs.eventstore.clockwork import PostgresClockwork
from libs.eventstore.deliveries import PostgresDeliveries
from libs.eventstore.eras import PostgresEras, ended
from libs.eventstore.heads import heads_of
from libs.eventstore.heads_reading import PostgresHeads
from libs.eventstore.mapper import Mapper
from libs.eventstore.port import (
    Append,
    Appended,
    BatchResult,
    Fate,
    Load,
    Loaded,
    OutboxToken,
    Recorded,
    Snapshot,
    SnapshotKey,
)
from libs.eventstore.reading import FACT, SPILLED, fact
from libs.eventstore.rows import persons_of, prepare
from libs.eventstore.statements import append_statement, forget_sql

FORGET_MAX: Final = 500
"""Outbox rows that one append deletes beside its own work."""


class PostgresStore(PostgresEras, PostgresClockwork, PostgresClaims, PostgresDeliveries, PostgresHeads):
    """Every port of the event store, on one pool that belongs to the caller."""

    def __init__(self, pool: asyncpg.Pool, *, mapper: Mapper | None = None, service: str = UNNAMED) -> None:
        super().__init__(pool, mapper=mapper, service=service)
        self._acked: list[OutboxToken] = []

    async def load(
        self,
        category: str,
        after: Mapping[UUID, int],
        *,
        beside: Collection[tuple[str, UUID]] = (),
        snapshots: SnapshotKey | None = None,
    ) -> Load:
        rows = await self._fetch_facts(
            _load_sql(category, with_snapshots=snapshots is not None),
            [*after.keys(), *(stream_id for _, stream_id in beside)],
            [*after.values(), *(0 for _ in beside)],
            [*(category for _ in after), *(other for other, _ in beside)],
            category,
            *(() if snapshots is None else (snapshots.schema, snapshots.every)),
        )
        events: defaultdict[UUID, list[Recorded]] = defaultdict(list)
        first: dict[UUID, asyncpg.Record] = {}
        for row in rows:
            if row["asked"] is not None:
                first.setdefault(row["asked"], row)
                if row["version"] is not None:
                    events[row["asked"]].append(fact(row, self._mapper))
        others = [first.pop(stream_id) for _, stream_id in beside]
        kept = {} if snapshots is None else {i: _snapshot(row) for i, row in first.items() if row["snapshot_version"]}
        for stream_id, snapshot in kept.items():
            below = events[stream_id].pop(0) if events[stream_id] else None
            if below is None or (below.version, below.digest) != (snapshot.version, snapshot.digest):
                return await self.load(category, after, beside=beside)
        return Load(
            now=rows[0]["now"],
            streams={
                stream_id: Loaded(
                    stream_id=stream_id,
                    version=row["head_version"] or 0,
                    digest=row["head_digest"] or b"",
                    wake_at=row["wake_at"],
                    tenant_group=row["head_group"],
                    tenant=row["head_tenant"],
                    events=tuple(events[stream_id]),
                    snapshot=kept.get(stream_id),
                )
                for stream_id, row in first.items()
            },
            beside={row["asked"]: tuple(events[row["asked"]]) for row in others if row["asked"] in events},
            outputs={
                (row["tenant_group"], row["output_digest"]): row["output"] for row in rows if row["output"] is not None
            },
        )

    async def append(self, category: str, appends: Sequence[Append]) -> BatchResult:
        await self._know(appends)
        batch = prepare(category, appends, self._mapper)
        era = await self.era()
        acked, self._acked = self._acked[:FORGET_MAX], self._acked[FORGET_MAX:]
        statement = append_statement(shape_of(batch, forget=bool(acked)), era)
        values = arguments(batch, acked)
        try:
            row = await self._fetchrow(statement.sql, *(values[name] for name in statement.parameters))
        except BaseException:
            self._acked += acked
            raise
        assert row is not None, "the statement answers one row"
        if row["era"] is None:
            raise ended(era)
        won, born = frozenset(row["won"]), frozenset(row["born"])
        lost = [append for append in batch.appends if append.stream_id not in won]
        fates = {fate.stream_id: fate for fate in await self._losers(category, lost)}
        skipped: defaultdict[UUID, list[UUID]] = defaultdict(list)
        for birth in batch.births:
            if birth.number not in born and birth.parent in won:
                skipped[birth.parent].append(birth.row.stream_id)
        for append in batch.appends:
            if (i := append.stream_id) in won:
                version = append.version + len(append.events)
                fates[i] = Appended(i, "won", version, batch.digests[i], tuple(skipped.get(i, ())))
        return BatchResult(
            appended=tuple(fates[append.stream_id] for append in batch.appends),
            written=tuple(
                event.written
                for event in batch.events
                if (event.written.stream_id in won if event.birth is None else event.birth in born)
            ),
            era=row["era"],
            outbox=None if row["xid"] is None else OutboxToken(row["era"], row["xid"]),
        )

    async def _know(self, appends: Sequence[Append]) -> None:
        with self._watched("subject_keys"):  # mostly nothing is written, so it shows nothing of room
            await self._mapper.people.know(persons_of(appends, self._mapper))

    async def keep_snapshots(self, schema: bytes, snapshots: Sequence[Snapshot]) -> None:
        await self._execute(
            """
            with kept as (
              select * from unnest($2::uuid[], $3::int[], $4::uuid[], $5::bytea[], $6::bytea[])
                as k(stream_id, version, tenant_group, digest, content)),
            dropped as (
              delete from snapshots s using kept k where s.stream_id = k.stream_id and s.version < k.version)
            insert into snapshots(stream_id, schema, version, tenant_group, digest, content)
            select k.stream_id, $1::bytea, k.version, k.tenant_group, k.digest, k.content from kept k
             order by k.stream_id on conflict (stream_id, schema, version) do nothing""",
            schema,
            [snapshot.stream_id for snapshot in snapshots],
            [snapshot.version for snapshot in snapshots],
            [snapshot.tenant_group for snapshot in snapshots],
            [snapshot.digest for snapshot in snapshots],
            [snapshot.content for snapshot in snapshots],
        )

    async def _losers(self, category: str, appends: Sequence[Append]) -> list[Appended]:
        """Say why appends were refused, by their heads as they are now: the statement saw them as before it waited."""
        if not appends:
            return []
        heads = heads_of(category)
        rows = await self._fetch(
            f"select stream_id, version, digest, {'claim' if heads.claimable else 'null::uuid as claim'}"  # noqa: S608
            f" from {heads.table} where stream_id = any($1::uuid[])",
            [append.stream_id for append in appends],
        )
        now = await self.now() if any(append.deadline is not None for append in appends) else None
        found = {row["stream_id"]: row for row in rows}
        fates = []
        for append in appends:
            head = found.get(append.stream_id)
            version, digest = (0, b"") if head is None else (head["version"], head["digest"])
            claimed = append.claim is None or (head is not None and head["claim"] == append.claim)
            gated = version == append.version and claimed
            late = now is not None and append.deadline is not None and now > append.deadline
            why: Fate = "lost" if not gated else "late" if late else "guarded" if append.guards else "lost"
            fates.append(Appended(append.stream_id, why, version, digest))
        return fates

    async def move_wakes(self, category: str, moves: Sequence[tuple[UUID, int, datetime | None]]) -> None:
        heads = heads_of(category)
        # A lease that stands ends with a wake, whatever the owner waits for; one that has ended must not hold it back.
        lease = "case when h.lease_until > minutebook_now() then h.lease_until end" if heads.claimable else "null"
        await self._execute(
            f"""
            with moved as materialized (
              select m.stream_id, m.wake_at from (
                select * from unnest($1::uuid[], $2::int[], $3::timestamptz[]) as m(stream_id, version, wake_at)
                 order by stream_id offset 0) m
              cross join lateral (
                select 1 from {heads.table} h where h.stream_id = m.stream_id and h.version = m.version
                   for no key update of h) held)
            update {heads.table} h set wake_at = least(m.wake_at, {lease}) from moved m where h.stream_id = m.stream_id
            """,  # noqa: S608 - names of our own
            [move[0] for move in moves],
            [move[1] for move in moves],
            [move[2] for move in moves],
        )

    async def published(self, token: OutboxToken) -> None:
        """Forget an outbox row with the next append, or by `flush`."""
        self._acked.append(token)

    async def flush(self) -> None:
        """Delete the outbox rows that wait for an append to delete them: when idle, and before the pool is closed.

        While the database is away they go on waiting, and this asks whether it is back.
        """
        self._full.look()
        self._read_only.look()
        acked, self._acked = self._acked, []
        try:
            if acked:
                source = "unnest($1::int[], $2::text[]) as token(era, xid)"
                await self._execute(forget_sql(source), [t.era for t in acked], [str(t.xid) for t in acked])
            elif self._outage.lasting:
                await self.now()
        except Unavailable:  # told by `_watched`, once
            self._acked += acked
        except BaseException:
            self._acked += acked
            raise

    async def close(self) -> None:
        """Flush. The pool stays open: it is the caller's."""
        await self.flush()

    async def events(
        self, category: str, stream_ids: Collection[UUID], *, tenant_group: UUID
    ) -> Mapping[UUID, tuple[Recorded, ...]]:
        rows = await self._fetch_facts(
            f"""
            select e.* from unnest($1::uuid[]) as a(stream_id)
             cross join lateral (
               select {FACT}, b.content from workflow_history e {SPILLED}
                where e.stream_id = a.stream_id and e.category = $2 and e.tenant_group = $3 offset 0) e
             order by e.stream_id, e.version""",  # noqa: S608 - our own columns
            list(set(stream_ids)),
            category,
            tenant_group,
        )
        found: defaultdict[UUID, list[Recorded]] = defaultdict(list)
        for row in rows:
            found[row["stream_id"]].append(fact(row, self._mapper))
        return {stream_id: tuple(events) for stream_id, events in found.items()}

    async def blobs(self, tenant_group: UUID, digests: Collection[str]) -> Mapping[str, bytes]:
        rows = await self._fetch(
            "select encode(digest, 'hex') as digest, content from blobs where tenant_group = $1 and digest = any($2)",
            tenant_group,
            [digest_bytes(digest) for digest in digests],
        )
        return {row["digest"]: row["content"] for row in rows}

    async def put_blobs(self, tenant_group: UUID, blobs: Mapping[str, bytes]) -> None:
        await self._execute(
            """
            insert into blobs(tenant_group, digest, content)
            select $1, b.digest, b.content from unnest($2::bytea[], $3::bytea[]) as b(digest, content)
             order by b.digest on conflict (tenant_group, digest) do nothing""",
            tenant_group,
            [digest_bytes(digest) for digest in blobs],
            list(blobs.values()),
        )

    async def now(self) -> datetime:
        row = await self._fetchrow("select minutebook_now() as now")
        assert row is not None
        now: Any = row["now"]
        return now  # type: ignore[no-any-return]


@cache
def _load_sql(category: str, *, with_snapshots: bool) -> str:
    """Streams by their heads and facts. Short streams cost no look for a snapshot: their length is asked first."""
    table, columns, snapshots, above = heads_of(category).table, "", "", "a.after"
    if with_snapshots:
        # The last fact below it comes too, to show that it is of this history, and brings the content, once.
        columns = """s.version as snapshot_version, s.digest as snapshot_digest,
                   case when e.version = s.version then s.content end as snapshot_content,"""
        snapshots = """
              left join lateral (
                select s.version, s.digest, s.content from snapshots s
                 where h.version >= $6::int and a.after = 0
                   and s.stream_id = a.stream_id and s.schema = $5::bytea
                 order by s.version desc limit 1) s on true"""
        above = "coalesce(s.version - 1, a.after)"
    # `offset 0` keeps the planner from joining: one probe a stream, of one partition, whatever the statistics say. It
    # also keeps the clock from being read for every row.
    return f"""
            select c.now, a.stream_id as asked, h.version as head_version, h.digest as head_digest, h.wake_at,
                   h.tenant_group as head_group, h.tenant as head_tenant, {columns} e.*
              from (select minutebook_now() as now offset 0) c
              left join unnest($1::uuid[], $2::int[], $3::text[]) with ordinality
                     as a(stream_id, after, category, n) on true
              left join lateral (
                select * from {table} h where h.stream_id = a.stream_id and a.category = $4) h on true{snapshots}
              left join lateral (
                select {FACT}, b.content, o.content as output, e.payload->'output'->>'digest' as output_digest
                  from workflow_history e {SPILLED}
                  left join blobs o on e.type = 'attempt.succeeded' and a.category <> $4
                                   and o.tenant_group = e.tenant_group
                                   and o.digest = decode(e.payload->'output'->>'digest', 'hex')
                 where e.stream_id = a.stream_id and e.version > {above} and e.category = a.category offset 0) e on true
             order by a.n, e.version"""  # noqa: S608 - names of our own


def _snapshot(row: asyncpg.Record) -> Snapshot:
    return Snapshot(
        stream_id=row["asked"],
        version=row["snapshot_version"],
        tenant_group=row["head_group"],
        digest=row["snapshot_digest"],
        content=row["snapshot_content"],
    )
