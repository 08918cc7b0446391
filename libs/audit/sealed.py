"""Is what was sealed still there? The seals against their leaves, the leaves against the history, a witness's seals."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import asyncpg

from libs.audit.findings import Finding, Progress, silent
from libs.audit.merkle import EMPTY, Edge
from libs.audit.seals import Seal, leaves_of, seals_of
from libs.audit.signing import Keyring
from libs.audit.witness import Witness
from libs.postgres.pool import fetch

FINDINGS_MAX: Final = 1_000
"""Streams of one kind of finding that are named; where there are more, the rest of them is counted."""

_TOLD_EVERY: Final = 10_000

_NOW: Final = """
select (select coalesce(max(number), 0) from seals) as number, (select coalesce(max(size), 0) from seals) as size,
       (select count(*) from seal_leaves) as leaves"""

# Of each stream with a leaf that the history does not have: where it ends now, and what was sealed.
_UNMET: Final = """
with unmet as materialized (
  select l.stream_id, min(l.version) as version, max(l.version) as sealed, max(l.number) as number
    from seal_leaves l left join workflow_history e on e.stream_id = l.stream_id and e.version = l.version
   where e.digest is distinct from l.digest group by l.stream_id)
select u.*, h.ends, h.category
  from unmet u left join lateral (
    select max(e.version) as ends, max(e.category) as category from workflow_history e
     where e.stream_id = u.stream_id) h on true
 order by u.stream_id limit"""

# Facts that stand below the last seal's boundary and are in no leaf: they were not there when it was made.
_UNSEALED: Final = """
with covered as materialized (select stream_id, max(version) as version from seal_leaves group by stream_id),
below as materialized (
  select e.stream_id, e.category, max(e.version) as version from workflow_history e
   where (e.era, e.xid) < ($1::int, $2::text::xid8) group by e.stream_id, e.category)
select b.stream_id, b.category, b.version, c.version as covered
  from below b left join covered c using (stream_id)
 where b.version > coalesce(c.version, 0)
 order by b.stream_id limit"""


@dataclass(frozen=True, slots=True)
class Sealed:
    """What the seals say. `last` is the newest one, None where there is none."""

    seals: int
    leaves: int
    last: Seal | None
    findings: tuple[Finding, ...]


async def check_seals(
    pool: asyncpg.Pool, ring: Keyring, *, witness: Witness | None = None, progress: Progress = silent
) -> Sealed:
    """Check every seal, every leaf, and that the record still begins with what a witness holds.

    Whoever owns the database and nothing else can neither make a seal nor change one unseen. They can take away the
    newest seals together with what these covered: that only a witness sees.

    Raises:
        contracts.errors.Unavailable: the database does not answer.
    """
    # Who seals meanwhile only adds: what is looked at ends with the newest seal of this moment.
    (now,) = await fetch(pool, _NOW)
    seals = [seal for seal in await seals_of(pool) if seal.number <= now["number"]]
    held = () if witness is None else witness.seals
    tree = await _roots(pool, now["size"], {seal.size for seal in (*seals, *held)}, progress)
    findings = [*_of_seals(seals, tree), *_of_signatures(seals, ring)]
    if now["leaves"] > now["size"]:
        findings.append(_tampered(f"there are {now['leaves']} leaves, and seals over {now['size']} of them"))
    if witness is not None:
        ring = Keyring([*ring.keys.values(), *witness.keys])
        began = await fetch(pool, "select era, began_at from eras order by era")
        eras = {row["era"]: row["began_at"] for row in began}
        findings += [*_of_witness(seals, held, tree, eras), *_of_signatures(held, ring, of="the witness's file")]
    progress("leaves in the history", tree.size)
    findings += await _of_leaves(pool)
    if seals:
        findings += await _of_history(pool, seals[-1])
    return Sealed(len(seals), tree.size, seals[-1] if seals else None, tuple(findings))


@dataclass(slots=True)
class _Tree:
    """The leaves as they are now: the roots at the sizes that were asked for, and the first number that is missing."""

    roots: dict[int, bytes] = field(default_factory=dict)
    size: int = 0
    missing: int | None = None


async def _roots(pool: asyncpg.Pool, below: int, sizes: set[int], progress: Progress) -> _Tree:
    tree, edge = _Tree({0: EMPTY}), Edge()
    async for leaf in leaves_of(pool, below=below):
        if leaf.number != edge.size:
            tree.missing = edge.size
            break
        edge.add(leaf.hash)
        if edge.size in sizes:
            tree.roots[edge.size] = edge.root()
        if edge.size % _TOLD_EVERY == 0:
            progress("leaves", edge.size)
    tree.size = edge.size
    return tree


def _of_seals(seals: Sequence[Seal], tree: _Tree) -> list[Finding]:
    """Seals are numbered without gaps, only grow, and are the roots of the leaves."""
    findings = []
    if tree.missing is not None:
        findings.append(_tampered(f"leaf {tree.missing} is missing; nothing above it can be proven"))
    number = size = 0
    for seal in seals:
        if seal.number != number + 1:
            findings.append(_tampered(f"seal {number + 1} is missing: seal {seal.number} follows"))
        if seal.size <= size:
            findings.append(_tampered(f"seal {seal.number} covers {seal.size} leaves, the one before it {size}"))
        elif seal.size > tree.size:
            if tree.missing is None:
                findings.append(_tampered(f"seal {seal.number} covers {seal.size} leaves, and there are {tree.size}"))
        elif tree.roots[seal.size] != seal.root:
            findings.append(_tampered(f"seal {seal.number} was made over other leaves than there are"))
        number, size = seal.number, seal.size
    return findings


def _of_signatures(seals: Sequence[Seal], ring: Keyring, *, of: str = "") -> list[Finding]:
    where = f" in {of}" if of else ""
    findings = []
    unknown: defaultdict[str, list[int]] = defaultdict(list)
    for seal in seals:
        match ring.verify(seal.key_id, seal.signature, seal.statement()):
            case False:
                findings.append(_tampered(f"the signature of seal {seal.number}{where} is not that of its content"))
            case None:
                unknown[seal.key_id].append(seal.number)
            case True:
                pass
    for key, numbers in unknown.items():
        detail = (
            f"seals {numbers[0]} to {numbers[-1]}{where} are signed by the key {key}, which is not known here: name "
            "its public half with --public-key, or in the secret seal_public_keys"
        )
        findings.append(Finding("unproven", "seal", detail))
    return findings


def _of_witness(
    seals: Sequence[Seal], held: Sequence[Seal], tree: _Tree, eras: Mapping[int, datetime]
) -> list[Finding]:
    """What somebody else holds must be here, the same, and the leaves must still add up to it."""
    known = {seal.number: seal for seal in seals}
    findings = []
    gone = [seal for seal in held if seal.number not in known]
    if gone:
        restored = [f"era {era} began at {at:%Y-%m-%d %H:%M:%S}" for era, at in eras.items() if at > gone[0].sealed_at]
        why = f"; {restored[0]}: was it restored to an older point?" if restored else ""
        detail = f"the witness holds seal {gone[0].number} of {gone[0].sealed_at:%Y-%m-%d %H:%M:%S}"
        findings.append(_tampered(f"{detail}, and the record ends before it{why}"))
    for seal in held:
        own = known.get(seal.number)
        if own is not None and own.statement() != seal.statement():
            findings.append(_tampered(f"seal {seal.number} is another one than the witness holds"))
        elif own is not None and tree.roots.get(seal.size, seal.root) != seal.root:
            findings.append(_tampered(f"the leaves are not those of seal {seal.number}, which the witness holds"))
    return findings


async def _of_leaves(pool: asyncpg.Pool) -> list[Finding]:
    rows = await fetch(pool, f"{_UNMET} {FINDINGS_MAX + 1:d}")
    findings = []
    for row in rows[:FINDINGS_MAX]:
        if row["ends"] is None:
            detail = f"the stream is gone: leaf {row['number']} seals its version {row['sealed']}"
        elif row["ends"] < row["sealed"]:
            detail = f"its tail was cut: leaf {row['number']} seals version {row['sealed']}, it ends at {row['ends']}"
        else:
            detail = f"version {row['version']} is not the fact that was sealed"
        findings.append(Finding("tampered", "seal", detail, row["category"], row["stream_id"]))
    return _with_rest(findings, len(rows), "are not as they were sealed")


async def _of_history(pool: asyncpg.Pool, last: Seal) -> list[Finding]:
    rows = await fetch(pool, f"{_UNSEALED} {FINDINGS_MAX + 1:d}", last.era, str(last.upto))
    findings = [
        Finding(
            "tampered",
            "seal",
            f"version {row['version']} stands where everything was sealed, and was not there: "
            + (
                f"version {row['covered']} is the last that was sealed"
                if row["covered"]
                else "nothing of it was sealed"
            ),
            row["category"],
            row["stream_id"],
        )
        for row in rows[:FINDINGS_MAX]
    ]
    return _with_rest(findings, len(rows), "have facts that were put behind the seals")


def _with_rest(findings: list[Finding], found: int, what: str) -> list[Finding]:
    if found > FINDINGS_MAX:
        findings.append(_tampered(f"more streams than these {FINDINGS_MAX} {what}"))
    return findings


def _tampered(detail: str) -> Finding:
    return Finding("tampered", "seal", detail)
