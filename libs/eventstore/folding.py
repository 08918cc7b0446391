"""Streams read back from the stored bytes: their chain recomputed, their state folded, beside the head row."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import asyncpg

from contracts.errors import Broken
from libs.domain.core import Category
from libs.eventstore.heads import Heads
from libs.eventstore.mapper import Mapper, chain, spilled_digest
from libs.eventstore.port import Recorded
from libs.eventstore.reading import FACT, SPILLED, fact

_HISTORY: Final = f"""
select {FACT}, b.content, e.tenant from workflow_history e {SPILLED}
 where e.stream_id = any($1::uuid[]) and e.category = $2 order by e.stream_id, e.version"""  # noqa: S608 - our own columns


@dataclass(frozen=True, slots=True)
class Folded:
    """What a stream's history says. `broken` is where its chain does not hold, in words; the rest is then unproven.

    `facts` are those up to that place.
    """

    stream_id: UUID
    version: int
    digest: bytes
    tenant_group: UUID
    tenant: UUID
    state: Any
    broken: str | None
    facts: tuple[Recorded, ...]


async def read_streams(
    connection: asyncpg.Connection, category: Category[Any], stream_ids: Sequence[UUID], mapper: Mapper
) -> dict[UUID, Folded]:
    """Read and fold streams. Those without any event are left out.

    Raises:
        contracts.errors.Unavailable: an event is of a newer release.
    """
    rows = await connection.fetch(_HISTORY, stream_ids, category.name)
    await mapper.people.recall(rows, connection=connection)
    by_stream: dict[UUID, list[asyncpg.Record]] = {}
    for row in rows:
        by_stream.setdefault(row["stream_id"], []).append(row)
    return {stream_id: _fold(category, rows, mapper) for stream_id, rows in by_stream.items()}


def _fold(category: Category[Any], rows: Sequence[asyncpg.Record], mapper: Mapper) -> Folded:
    digest, broken = b"", None
    facts: list[Recorded] = []
    for number, row in enumerate(rows, 1):
        wrong = _check(row, number, digest)
        broken = broken or wrong
        digest = row["digest"]
        if broken is None:
            try:
                facts.append(fact(row, mapper))
            except Broken as error:
                broken = error.message
    last = rows[-1]
    return Folded(
        stream_id=last["stream_id"],
        version=last["version"],
        digest=last["digest"],
        tenant_group=last["tenant_group"],
        tenant=last["tenant"],
        state=category.fold(tuple(recorded.event for recorded in facts)),
        broken=broken,
        facts=tuple(facts),
    )


def _check(row: asyncpg.Record, number: int, previous: bytes) -> str | None:
    """Say what is wrong with an event that should be number `number` of its stream."""
    if row["version"] != number:
        return f"version {number} is missing: version {row['version']} follows"
    computed = chain(
        previous,
        stream_id=row["stream_id"],
        version=row["version"],
        category=row["category"],
        type_=row["type"],
        event_version=row["event_version"],
        payload=row["payload"],
        metadata=row["metadata"],
    )
    if computed != row["digest"]:
        return f"the digest at version {number} is not that of the stored bytes"
    spilled = spilled_digest(row["payload"])
    if spilled is not None:
        if row["content"] is None:
            return f"the payload of version {number}, blob {spilled}, is missing"
        if hashlib.sha256(row["content"]).hexdigest() != spilled:
            return f"the payload of version {number} is not the content of blob {spilled}"
    return None


def derived(heads: Heads, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Derived columns as the head row has them: arrays are lists."""
    heads.check(columns)
    return {n: list(columns[n]) if kind == "text[]" else columns[n] for n, kind in heads.columns.items()}
