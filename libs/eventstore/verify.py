"""Does the record agree with itself? Chains against the stored bytes, head rows against the fold."""

from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, Final
from uuid import UUID

import asyncpg

from libs.domain.core import Category
from libs.eventstore.folding import Folded, derived, read_streams
from libs.eventstore.heads import Heads, heads_of
from libs.eventstore.mapper import Mapper
from libs.eventstore.port import Difference, Verification
from libs.postgres.pool import transaction

PAGE: Final = 200
_LOWEST: Final = UUID(int=0)


async def verify(
    pool: asyncpg.Pool,
    categories: Mapping[str, Category[Any]],
    *,
    tenant_group: UUID | None = None,
    stream_ids: Collection[UUID] | None = None,
    mapper: Mapper | None = None,
) -> Verification:
    """Check streams of these categories, all or those of a tenant group or those named, while the system runs.

    Each page is read from one snapshot, so that writers beside it make no difference. A chain alone cannot show a
    tail that was cut together with its head row.

    Raises:
        contracts.errors.Unavailable: the database does not answer, or an event is of a newer release.
    """
    streams = events = 0
    differences: list[Difference] = []
    for category in categories.values():
        async for heads, folded in _pages(pool, category, tenant_group, stream_ids, mapper or Mapper()):
            for stream_id in heads.keys() | folded.keys():
                streams += 1
                found = folded.get(stream_id)
                events += 0 if found is None else found.version
                differences += _compare(category, stream_id, heads.get(stream_id), found)
    return Verification(streams, events, tuple(differences))


async def _pages(
    pool: asyncpg.Pool,
    category: Category[Any],
    tenant_group: UUID | None,
    stream_ids: Collection[UUID] | None,
    mapper: Mapper,
) -> AsyncIterator[tuple[dict[UUID, asyncpg.Record], dict[UUID, Folded]]]:
    """Page by stream id through heads and histories together, so that either without the other shows."""
    last = _LOWEST
    while True:
        async with transaction(pool, isolation="repeatable_read", readonly=True) as connection:
            ids = [
                row["stream_id"]
                for row in await connection.fetch(
                    _ids(heads_of(category.name)),
                    last,
                    tenant_group,
                    None if stream_ids is None else list(stream_ids),
                    category.name,
                    PAGE,
                )
            ]
            table = heads_of(category.name).table
            rows = await connection.fetch(f"select * from {table} where stream_id = any($1::uuid[])", ids)  # noqa: S608
            folded = await read_streams(connection, category, ids, mapper)
        if not ids:
            return
        yield {row["stream_id"]: row for row in rows}, folded
        last = ids[-1]


def _ids(heads: Heads) -> str:
    """Stream ids after $1: of the heads, and of the history whether or not there is a head."""

    def chosen(table: str, extra: str = "") -> str:
        return (
            f"(select distinct stream_id from {table} where stream_id > $1 and ($2::uuid is null or tenant_group = $2)"  # noqa: S608
            f" and ($3::uuid[] is null or stream_id = any($3)){extra} order by stream_id limit $5)"
        )

    history = chosen("workflow_history", " and category = $4")
    return f"select stream_id from ({chosen(heads.table)} union {history}) s order by stream_id limit $5"  # noqa: S608


def _compare(
    category: Category[Any], stream_id: UUID, head: asyncpg.Record | None, folded: Folded | None
) -> list[Difference]:
    def difference(kind: Any, detail: str) -> list[Difference]:
        return [Difference(category.name, stream_id, kind, detail)]

    if folded is None:
        return difference("missing_events", "there is a head row and no event")
    found = [] if folded.broken is None else difference("chain", folded.broken)
    if head is None:
        return [*found, *difference("missing_head", f"there are {folded.version} events and no head row")]
    if head["version"] > folded.version:
        detail = f"the head is at version {head['version']}, the history ends at {folded.version}"
        return [*found, *difference("missing_events", detail)]
    if found:
        return found
    return [d for detail in _head_differences(category, head, folded) for d in difference("head", detail)]


def _head_differences(category: Category[Any], head: asyncpg.Record, folded: Folded) -> list[str]:
    expected = {
        "version": folded.version,
        "digest": folded.digest,
        "tenant_group": folded.tenant_group,
        "tenant": folded.tenant,
        "state": category.status(folded.state),
    } | derived(heads_of(category.name), category.columns(folded.state))
    # Names only: values may be what a person must not read in a report.
    return [f"column {name} is not what the history says" for name, value in expected.items() if head[name] != value]
