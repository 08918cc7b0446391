"""Head rows made anew from the history, while the system runs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import asyncpg

from libs.domain.core import Category
from libs.eventstore.folding import Folded, derived, read_streams
from libs.eventstore.heads import Heads, heads_of
from libs.eventstore.mapper import Mapper
from libs.eventstore.people import PostgresPeople
from libs.postgres.pool import fetch, transaction

PAGE: Final = 50
"""Rows that one transaction locks: few, for owners wait behind them."""

_LOWEST: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What `rebuild` did. `skipped` are streams whose history cannot be trusted; `verify` says why."""

    streams: int
    skipped: tuple[UUID, ...]


async def rebuild(
    pool: asyncpg.Pool,
    categories: Mapping[str, Category[Any]],
    *,
    tenant_group: UUID | None = None,
    stream_ids: Collection[UUID] | None = None,
    mapper: Mapper | None = None,
) -> Rebuilt:
    """Recompute state, digest and derived columns of head rows, and insert rows that are missing.

    A row is locked while its history is read, and its version is never written: what an owner appends meanwhile stays.
    Wakes become due now, so that the owner looks; claims and leases stay as they are. Snapshots of these streams are
    dropped: owners keep new ones as they go on.

    Raises:
        contracts.errors.Unavailable: the database does not answer, or an event is of a newer release.
    """
    known = mapper or Mapper(people=PostgresPeople(pool))
    streams = 0
    skipped: list[UUID] = []
    for category in categories.values():
        last = _LOWEST
        while ids := await _ids(pool, category.name, last, tenant_group, stream_ids):
            skipped += await _rebuild_page(pool, category, ids, known)
            streams += len(ids)
            last = ids[-1]
    return Rebuilt(streams - len(skipped), tuple(skipped))


async def _ids(
    pool: asyncpg.Pool,
    category: str,
    last: UUID,
    tenant_group: UUID | None,
    stream_ids: Collection[UUID] | None,
) -> list[UUID]:
    rows = await fetch(
        pool,
        "select stream_id from workflow_history where version = 1 and category = $1 and stream_id > $2"
        " and ($3::uuid is null or tenant_group = $3) and ($4::uuid[] is null or stream_id = any($4))"
        " order by stream_id limit $5",
        category,
        last,
        tenant_group,
        None if stream_ids is None else list(stream_ids),
        PAGE,
    )
    return [row["stream_id"] for row in rows]


async def _rebuild_page(pool: asyncpg.Pool, category: Category[Any], ids: list[UUID], mapper: Mapper) -> list[UUID]:
    heads = heads_of(category.name)
    skipped = []
    async with transaction(pool) as connection:
        rows = await connection.fetch(
            f"select stream_id, version, wake_at from {heads.table}"  # noqa: S608 - a table's name, of our own
            " where stream_id = any($1::uuid[]) order by stream_id for no key update",
            ids,
        )
        found = {row["stream_id"]: row for row in rows}
        now = await connection.fetchval("select minutebook_now()")
        folded = await read_streams(connection, category, ids, mapper)
        await connection.execute("delete from snapshots where stream_id = any($1::uuid[])", ids)
        for stream_id in ids:
            stream, head = folded[stream_id], found.get(stream_id)
            if stream.broken is not None or (head is not None and head["version"] != stream.version):
                skipped.append(stream_id)
                continue
            waits = category.wake_at(stream.state, now) is not None or (
                head is not None and head["wake_at"] is not None
            )
            await _write(connection, category, heads, stream, wake_at=now if waits else None)
    return skipped


async def _write(
    connection: asyncpg.Connection, category: Category[Any], heads: Heads, stream: Folded, *, wake_at: Any
) -> None:
    values = {
        "stream_id": stream.stream_id,
        "tenant_group": stream.tenant_group,
        "tenant": stream.tenant,
        "state": category.status(stream.state),
        "digest": stream.digest,
        "wake_at": wake_at,
    } | derived(heads, category.columns(stream.state))
    updates = ", ".join(f"{name} = excluded.{name}" for name in values if name != "stream_id")
    numbers = ", ".join(f"${n}" for n in range(1, len(values) + 2))
    await connection.execute(
        f"insert into {heads.table} as h ({', '.join(values)}, version, appended) values ({numbers}, 1)"  # noqa: S608
        f" on conflict (stream_id) do update set {updates} where h.version = excluded.version",
        *values.values(),
        stream.version,
    )
