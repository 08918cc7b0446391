"""Seals: a signed root, at intervals, over where every stream stood. What was sealed cannot be taken back unseen.

A chain shows a fact that was changed. It shows neither a tail that was cut together with its head row, nor a stream
that vanished. So each seal appends one leaf per stream that changed since the last one, its tip, to a Merkle tree that
only grows, and signs the root. Whoever holds an earlier seal can tell whether the tree still begins with what that one
covered.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import asyncpg

from contracts.errors import Broken
from libs.audit.merkle import Edge, leaf_hash
from libs.audit.signing import SigningKey
from libs.canonical import canonical
from libs.postgres.pool import fetch, fetchrow

FACTS_MAX: Final = 50_000
"""Facts that one seal looks at. More wait for the next one, which follows at once."""

PAGE: Final = 10_000

FORMAT: Final = "minutebook.seal/1"


_SEALS: Final = "select number, sealed_at, era, upto::text::bigint as upto, size, root, key_id, signature from seals"

_BOUNDS: Final = f"""
select s.*, b.*
  from (select (select max(era) from eras) as now_era, minutebook_now() as now,
               pg_snapshot_xmin(pg_current_snapshot())::text::bigint as xmin) b
  left join lateral ({_SEALS} order by number desc limit 1) s on true"""  # noqa: S608 - our own columns

# Facts from one boundary to another, each an era and a transaction id; the first belongs to it, the second does not.
_BETWEEN: Final = """
  from workflow_history e
 where (e.era, e.xid) >= ($1::int, $2::text::xid8) and (e.era, e.xid) < ($3::int, $4::text::xid8)"""

_NTH: Final = f"""
select e.era, e.xid::text::bigint as xid {_BETWEEN} order by e.era, e.xid, e.position offset"""

_TIPS: Final = f"""
select distinct on (e.stream_id) e.stream_id, e.tenant_group, e.version, e.digest {_BETWEEN}
 order by e.stream_id, e.version desc"""

_WRITE: Final = """
with made as (
  insert into seals(number, sealed_at, era, upto, size, root, key_id, signature)
  values ($1, $2, $3, $4::text::xid8, $5, $6, $7, $8) on conflict (number) do nothing returning number),
kept as (
  insert into seal_leaves(number, stream_id, tenant_group, version, digest)
  select l.* from unnest($9::bigint[], $10::uuid[], $11::uuid[], $12::int[], $13::bytea[]) as l
   where exists (select from made))
select count(*) as made from made"""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The tip of a stream, as it was sealed. `number` counts from 0 over all seals."""

    number: int
    stream_id: UUID
    version: int
    digest: bytes

    @property
    def content(self) -> bytes:
        """What the tree hashes: 16 bytes of id, 8 of version (big-endian), 32 of digest."""
        return self.stream_id.bytes + self.version.to_bytes(8) + self.digest

    @property
    def hash(self) -> bytes:
        return leaf_hash(self.content)


@dataclass(frozen=True, slots=True)
class Seal:
    """A signed root over the first `size` leaves: of all facts in transactions before `upto` of this era."""

    number: int
    sealed_at: datetime
    era: int
    upto: int
    size: int
    root: bytes
    key_id: str
    signature: bytes = b""

    def said(self) -> dict[str, Any]:
        """What is signed, as JSON."""
        return {
            "format": FORMAT,
            "number": self.number,
            "sealed_at": self.sealed_at.astimezone(UTC).isoformat(timespec="microseconds"),
            "era": self.era,
            "upto": self.upto,
            "size": self.size,
            "root": self.root.hex(),
            "key_id": self.key_id,
        }

    def statement(self) -> bytes:
        """The bytes that are signed: the canonical JSON of `said`."""
        return canonical(self.said())


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Where sealing stands: the last seal, and the era, the boundary and the moment that a seal would have now."""

    last: Seal | None
    era: int
    upto: int
    now: datetime


class Sealer:
    """Makes seals. Several may try: the number of the next one is the gate.

    A new sealer reads all leaves once and holds them to the last root; from then on a seal costs what changed.
    """

    def __init__(self, pool: asyncpg.Pool, *, facts_max: int = FACTS_MAX) -> None:
        self._pool = pool
        self._facts_max = facts_max
        self._edge: Edge | None = None

    async def seal(self, key: SigningKey) -> Seal | None:
        """Make the next seal; None when nothing was written since the last one, or somebody else was first.

        Raises:
            contracts.errors.Unavailable: the database does not answer.
            contracts.errors.Broken: ``seals.broken``, the leaves do not add up to the last seal; nothing is sealed over
                it.
        """
        bounds = await self._bounds()
        edge = await self._grown(bounds.last)
        era, upto = await self._upto(bounds)
        tips = await self._tips(bounds.last, era, upto)
        if not tips:
            return None
        grown = edge.copy()
        leaves = [Leaf(edge.size + n, row["stream_id"], row["version"], row["digest"]) for n, row in enumerate(tips)]
        for leaf in leaves:
            grown.add(leaf.hash)
        draft = Seal(
            number=1 if bounds.last is None else bounds.last.number + 1,
            sealed_at=bounds.now,
            era=era,
            upto=upto,
            size=grown.size,
            root=grown.root(),
            key_id=key.id,
        )
        seal = signed(draft, key)
        if not await self._write(seal, leaves, [row["tenant_group"] for row in tips]):
            self._edge = None
            return None
        self._edge = grown
        return seal

    async def _bounds(self) -> _Bounds:
        """A transaction that is below the boundary has ended, so what a seal covers never changes any more."""
        row = await fetchrow(self._pool, _BOUNDS)
        assert row is not None, "one row, whatever there is"
        last = None if row["number"] is None else _seal(row)
        return _Bounds(last, row["now_era"], row["xmin"], row["now"])

    async def _grown(self, last: Seal | None) -> Edge:
        """The tree's edge at the last seal: from here, or from the leaves."""
        size = 0 if last is None else last.size
        if self._edge is None or self._edge.size != size:
            self._edge = Edge()
            async for leaf in leaves_of(self._pool, below=size):
                self._edge.add(leaf.hash)
        if self._edge.size != size or (last is not None and self._edge.root() != last.root):
            self._edge = None
            raise Broken(
                "seals.broken",
                f"the leaves below seal {0 if last is None else last.number} are not those that it was made over: "
                "nothing is sealed until that is understood; `minutebook audit verify` says what is missing",
            )
        return self._edge

    async def _upto(self, bounds: _Bounds) -> tuple[int, int]:
        """The boundary of this seal: all that is safe to read, or less when that is too much for one."""
        row = await fetchrow(
            self._pool, f"{_NTH} {self._facts_max:d} limit 1", *_from(bounds.last), bounds.era, str(bounds.upto)
        )
        if row is None or (row["era"], str(row["xid"])) == _from(bounds.last):
            return bounds.era, bounds.upto
        return row["era"], row["xid"]

    async def _tips(self, last: Seal | None, era: int, upto: int) -> list[asyncpg.Record]:
        return await fetch(self._pool, _TIPS, *_from(last), era, str(upto))

    async def _write(self, seal: Seal, leaves: Sequence[Leaf], groups: Sequence[UUID]) -> bool:
        """Write a seal with its leaves in one statement; False when there is one of its number."""
        row = await fetchrow(
            self._pool,
            _WRITE,
            seal.number,
            seal.sealed_at,
            seal.era,
            str(seal.upto),
            seal.size,
            seal.root,
            seal.key_id,
            seal.signature,
            [leaf.number for leaf in leaves],
            [leaf.stream_id for leaf in leaves],
            list(groups),
            [leaf.version for leaf in leaves],
            [leaf.digest for leaf in leaves],
        )
        assert row is not None, "an aggregate answers one row"
        return bool(row["made"])


def signed(seal: Seal, key: SigningKey) -> Seal:
    """The seal with its signature."""
    return replace(seal, key_id=key.id, signature=key.sign(replace(seal, key_id=key.id).statement()))


async def seals_of(pool: asyncpg.Pool) -> list[Seal]:
    """All seals in order. One a few minutes, of 200 bytes each: a year of them is 20 MB at most."""
    return [_seal(row) for row in await fetch(pool, f"{_SEALS} order by number")]


async def leaves_of(pool: asyncpg.Pool, *, below: int | None = None) -> AsyncIterator[Leaf]:
    """The leaves in order, page by page. One that is missing is passed over: numbers tell."""
    last = -1
    while True:
        rows = await fetch(
            pool,
            "select number, stream_id, version, digest from seal_leaves"
            " where number > $1 and ($2::bigint is null or number < $2) order by number limit $3",
            last,
            below,
            PAGE,
        )
        for row in rows:
            yield Leaf(**row)
        if len(rows) < PAGE:
            return
        last = rows[-1]["number"]


def _seal(row: asyncpg.Record) -> Seal:
    return Seal(
        number=row["number"],
        sealed_at=row["sealed_at"],
        era=row["era"],
        upto=row["upto"],
        size=row["size"],
        root=row["root"],
        key_id=row["key_id"],
        signature=row["signature"],
    )


def _from(last: Seal | None) -> tuple[int, str]:
    """The lower bound of what is not sealed yet."""
    return (0, "0") if last is None else (last.era, str(last.upto))
