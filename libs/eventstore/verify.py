"""Does the record agree with itself? Chains against the stored bytes, head rows and snapshots against the fold."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import asyncpg
from pydantic import ValidationError

from libs.domain.core import Category
from libs.eventstore.contents import refs_of
from libs.eventstore.folding import Folded, derived, read_streams
from libs.eventstore.heads import Heads, heads_of
from libs.eventstore.mapper import Mapper
from libs.eventstore.people import PostgresPeople
from libs.eventstore.port import Difference, Recorded, Verification
from libs.eventstore.snapshots import Kept, Snapshots
from libs.postgres.pool import fetch, transaction

PAGE: Final = 200
_LOWEST: Final = UUID(int=0)


async def verify(
    pool: asyncpg.Pool,
    categories: Mapping[str, Category[Any]],
    *,
    tenant_group: UUID | None = None,
    stream_ids: Collection[UUID] | None = None,
    mapper: Mapper | None = None,
    contents: bool = False,
    progress: Callable[[str, int], None] | None = None,
) -> Verification:
    """Check streams of these categories, all or those of a tenant group or those named, while the system runs.

    Each page is read at one moment, so that writers beside it make no difference. A chain alone cannot show a tail
    that was cut together with its head row: seals do. With `contents` also what facts name in `blobs` is held to its
    digest. `progress` hears ("streams", how many) now and then. Snapshots of other releases are not looked at: nothing
    here reads them.

    Raises:
        contracts.errors.Unavailable: the database does not answer, or an event is of a newer release.
    """
    known = mapper or Mapper(people=PostgresPeople(pool))
    streams = events = 0
    differences: list[Difference] = []
    for category in categories.values():
        snapshots = Snapshots(category)
        async for page in _pages(pool, category, snapshots.schema, tenant_group, stream_ids, known):
            for stream_id in page.heads.keys() | page.folded.keys():
                streams += 1
                found = page.folded.get(stream_id)
                events += 0 if found is None else found.version
                differences += _compare(category, stream_id, page.heads.get(stream_id), found)
            differences += _wrong_snapshots(category, snapshots, page)
            if contents:
                differences += await _wrong_contents(pool, category, page.folded)
            if progress is not None:
                progress("streams", streams)
    return Verification(streams, events, tuple(differences))


@dataclass(frozen=True, slots=True)
class _Page:
    """What one moment shows of some streams."""

    heads: Mapping[UUID, asyncpg.Record]
    folded: Mapping[UUID, Folded]
    snapshots: Sequence[asyncpg.Record]


async def _pages(
    pool: asyncpg.Pool,
    category: Category[Any],
    schema: bytes,
    tenant_group: UUID | None,
    stream_ids: Collection[UUID] | None,
    mapper: Mapper,
) -> AsyncIterator[_Page]:
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
            snapshots = await connection.fetch(
                "select stream_id, version, digest, content from snapshots"
                " where stream_id = any($1::uuid[]) and schema = $2 order by stream_id, version",
                ids,
                schema,
            )
        if not ids:
            return
        yield _Page({row["stream_id"]: row for row in rows}, folded, snapshots)
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


def _wrong_snapshots(category: Category[Any], snapshots: Snapshots[Any], page: _Page) -> list[Difference]:
    """Snapshots that are not what the facts below them add up to. Of a broken history nothing can be said."""
    differences = []
    for row in page.snapshots:
        folded = page.folded.get(row["stream_id"])
        if folded is not None and folded.broken is not None:
            continue
        facts = () if folded is None else folded.facts[: row["version"]]
        if len(facts) < row["version"] or facts[-1].digest != row["digest"]:
            detail = f"the snapshot at version {row['version']} is of another history; it is not read"
        elif _read(snapshots, row["content"]) != Kept(category.initial).above(category, facts):
            detail = f"the snapshot at version {row['version']} is not what the history says; rebuild drops it"
        else:
            continue
        differences.append(Difference(category.name, row["stream_id"], "snapshot", detail))
    return differences


async def _wrong_contents(
    pool: asyncpg.Pool, category: Category[Any], folded: Mapping[UUID, Folded]
) -> list[Difference]:
    """Facts that name content which is not there, or is another. Read later than the facts: content is only added."""
    named: dict[tuple[UUID, bytes], list[Recorded]] = {}
    for stream in folded.values():
        for recorded in stream.facts:
            for ref in refs_of(recorded.event):
                named.setdefault((stream.tenant_group, bytes.fromhex(ref.digest)), []).append(recorded)
    rows = await fetch(
        pool,
        "select n.tenant_group, n.digest, b.digest is null as missing"
        " from unnest($1::uuid[], $2::bytea[]) as n(tenant_group, digest)"
        " left join blobs b using (tenant_group, digest)"
        " where b.digest is null or sha256(b.content) <> b.digest order by 1, 2",
        [group for group, _ in named],
        [digest for _, digest in named],
    )
    return [
        Difference(
            category.name,
            recorded.stream_id,
            "content",
            f"version {recorded.version} names content {row['digest'].hex()}, which is "
            + ("missing" if row["missing"] else "another one than was recorded"),
        )
        for row in rows
        for recorded in named[row["tenant_group"], row["digest"]]
    ]


def _read(snapshots: Snapshots[Any], content: bytes) -> Kept[Any] | None:
    try:
        return snapshots.read(content)
    except ValidationError:
        return None
