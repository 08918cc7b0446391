"""What is left of a person: texts sealed under their key, rows derived from such, and places where they stand in clear.

Everything here looks at one tenant group, page by page, and can be begun anew at any time.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import asyncpg

from libs.eventstore.heads import HEADS
from libs.eventstore.keyring import token_mark
from libs.postgres.pool import fetch

FACTS_PAGE: Final = 10_000
BLOBS_PAGE: Final = 500
STREAMS_PAGE: Final = 1_000
RUNS_NAMED_MAX: Final = 1_000
"""Runs that a place names; its count goes on."""

Progress = Callable[[str], None]

# The last row of a page comes always: it is where the next one begins.
_FACTS: Final = """
with page as materialized (
  select e.era, e.xid, e.position, e.stream_id, e.category, e.payload::text as payload, e.metadata::text as metadata
    from workflow_history e
   where (e.era, e.xid, e.position) > ($1::int, $2::text::xid8, $3::bigint) and e.tenant_group = $4
   order by e.era, e.xid, e.position limit $7),
looked as (
  select p.*, (length(texts) - length(replace(texts, $5, ''))) / length($5) as sealed,
         exists (select from unnest($6::text[]) t where position(t in lower(texts)) > 0) as clear,
         row_number() over (order by era, xid, position) = count(*) over () as last, count(*) over () as facts
    from page p cross join lateral (select p.payload || p.metadata as texts) t)
select era, xid::text as xid, position, stream_id, category, sealed, clear, last, facts,
       metadata::json->>'correlation' as run
  from looked where sealed > 0 or clear or last order by era, xid, position"""

_BLOBS: Final = """
with page as materialized (
  select digest, content from blobs where tenant_group = $1 and digest > $2 order by digest limit $5),
looked as (
  select digest, position(convert_to($3, 'UTF8') in content) > 0 as sealed,
         exists (select from unnest($4::text[]) t where position(convert_to(t, 'UTF8') in content) > 0) as clear,
         row_number() over (order by digest) = count(*) over () as last
    from page)
select digest, sealed, clear, last from looked where sealed or clear or last order by digest"""

_RUNS_OF_BLOBS: Final = """
select distinct e.metadata->>'correlation' as run from workflow_history e
 cross join lateral regexp_matches(e.payload::text, '[0-9a-f]{64}', 'g') as found(digest)
 where e.tenant_group = $1 and found.digest[1] = any($2::text[]) limit $3"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a person stands in clear: how many rows of which table, and the runs that they belong to."""

    table: str
    rows: int
    runs: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class Traces:
    """What there is of a person. `sealed` counts texts by category; `streams` hold such; `identities` are theirs."""

    sealed: Counter[str] = field(default_factory=Counter)
    sealed_blobs: int = 0
    streams: frozenset[UUID] = frozenset()
    identities: frozenset[UUID] = frozenset()
    clear: tuple[Place, ...] = ()


async def trace(
    pool: asyncpg.Pool, tenant_group: UUID, person: UUID, texts: Collection[str], progress: Progress
) -> Traces:
    """Look for a person: for tokens under their key, and for `texts` in clear, upper and lower case alike.

    Content of blobs is compared as it is written, and in lower case.

    Raises:
        contracts.errors.Unavailable: the database does not answer.
    """
    forms = sorted({form for text in texts if text for form in _forms(text)})
    lowered = sorted({form.lower() for form in forms})
    sealed: Counter[str] = Counter()
    streams: set[UUID] = set()
    identities: set[UUID] = set()
    clear = _Clear()
    async for row in _history(pool, tenant_group, token_mark(person), lowered, progress):
        if row["sealed"]:
            sealed[row["category"]] += row["sealed"]
            streams.add(row["stream_id"])
            if row["category"] == "identity":
                identities.add(row["stream_id"])
        if row["clear"]:
            clear.add("workflow_history", row["run"])
    digests, sealed_blobs = await _blobs(pool, tenant_group, token_mark(person), forms + lowered, progress)
    if digests:
        progress(f"looking for the runs of {len(digests)} blobs")
        runs = await fetch(pool, _RUNS_OF_BLOBS, tenant_group, [d.hex() for d in digests], RUNS_NAMED_MAX)
        clear.rows["blobs"] += len(digests)
        clear.runs.setdefault("blobs", set()).update(UUID(row["run"]) for row in runs)
    for table, run in _TABLES.items():
        progress(f"looking through {table}")
        rows = await fetch(pool, _derived(table, run), tenant_group, lowered)
        for row in rows:
            clear.add(table, row["run"])
    return Traces(sealed, sealed_blobs, frozenset(streams), frozenset(identities), clear.places())


async def drop_snapshots(pool: asyncpg.Pool, stream_ids: Collection[UUID]) -> int:
    """Drop the snapshots of streams: owners make new ones of what can be read by then."""
    ordered = sorted(stream_ids)
    dropped = 0
    for start in range(0, len(ordered), STREAMS_PAGE):
        rows = await fetch(
            pool,
            "delete from snapshots where stream_id = any($1::uuid[]) returning 1",
            ordered[start : start + STREAMS_PAGE],
        )
        dropped += len(rows)
    return dropped


class _Clear:
    """Counts rows by table."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.runs: dict[str, set[UUID]] = {}

    def add(self, table: str, run: object) -> None:
        self.rows[table] += 1
        named = self.runs.setdefault(table, set())
        if run is not None and len(named) < RUNS_NAMED_MAX:
            named.add(UUID(str(run)))

    def places(self) -> tuple[Place, ...]:
        return tuple(
            Place(table, rows, tuple(sorted(self.runs.get(table, ())))) for table, rows in sorted(self.rows.items())
        )


async def _history(pool: asyncpg.Pool, tenant_group: UUID, mark: str, texts: Sequence[str], progress: Progress) -> Any:
    era, xid, position, looked = 0, "0", 0, 0
    while True:
        rows = await fetch(pool, _FACTS, era, xid, position, tenant_group, mark, texts, FACTS_PAGE)
        for row in rows:
            yield row
        if not rows or rows[-1]["facts"] < FACTS_PAGE:
            return
        looked += rows[-1]["facts"]
        progress(f"{looked} facts looked through")
        era, xid, position = rows[-1]["era"], rows[-1]["xid"], rows[-1]["position"]


async def _blobs(
    pool: asyncpg.Pool, tenant_group: UUID, mark: str, texts: Sequence[str], progress: Progress
) -> tuple[list[bytes], int]:
    """The digests of blobs with one of the texts in clear, and how many hold tokens."""
    clear: list[bytes] = []
    sealed, last = 0, b""
    while rows := await fetch(pool, _BLOBS, tenant_group, last, mark, texts, BLOBS_PAGE):
        clear += [row["digest"] for row in rows if row["clear"]]
        sealed += sum(row["sealed"] for row in rows)
        last = rows[-1]["digest"]
        progress(f"blobs looked through up to {last.hex()[:8]}")
    return clear, sealed


_TABLES: Final = {
    **{
        heads.table: "stream_id" if category == "run" else "run_id" if "run_id" in heads.columns else "null::uuid"
        for category, heads in HEADS.items()
    },
    "snapshots": "null::uuid",
    "deliveries": "null::uuid",
    "dead_letters": "null::uuid",
}
"""Tables beside history and blobs, and the run of a row. Those of keys, seals, leases and the outbox hold no texts."""


def _derived(table: str, run: str) -> str:
    """Rows that show one of the texts $2. Of snapshots the content is read, of other tables what their columns show."""
    shown = "lower(convert_from(t.content, 'UTF8'))" if table == "snapshots" else "lower(to_json(t)::text)"
    return (
        f"select {run} as run from {table} t where t.tenant_group = $1"  # noqa: S608 - names of our own
        f" and exists (select from unnest($2::text[]) x where position(x in {shown}) > 0)"
    )


def _forms(text: str) -> tuple[str, str]:
    """A text as people write it, and as it stands in JSON."""
    return text, json.dumps(text, ensure_ascii=False)[1:-1]
