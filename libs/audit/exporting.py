"""A bundle of the record to take away: facts, content, seals and proofs, with a script that checks it offline."""

import hashlib
import os
import zipfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg

from contracts.errors import Rejected
from libs.audit import offline
from libs.audit.findings import Progress, silent
from libs.audit.merkle import Tree
from libs.audit.seals import Seal, leaves_of, seals_of
from libs.audit.signing import Keyring, SigningKey
from libs.audit.witness import written
from libs.canonical import canonical
from libs.eventstore.contents import refs_of
from libs.eventstore.heads import HEADS
from libs.eventstore.mapper import Mapper, spilled_digest
from libs.eventstore.reading import FACT, SPILLED, fact
from libs.postgres.pool import fetch

FORMAT: Final = "minutebook.bundle/1"
PAGE: Final = 200

_CHILDREN: Final = "".join(
    f" union select stream_id from {heads.table} where run_id = $1"  # noqa: S608 - names of our own
    for heads in HEADS.values()
    if "run_id" in heads.columns
)
_RUNS_OWN: Final = f"select $1::uuid as stream_id {_CHILDREN}"

_ROWS: Final = f"""
select {FACT}, e.tenant, b.content from workflow_history e {SPILLED}
 where e.stream_id = any($1::uuid[]) order by e.stream_id, e.version"""  # noqa: S608 - our own columns

_TIPS: Final = """
select distinct on (stream_id) number, stream_id, version, digest from seal_leaves
 where stream_id = any($1::uuid[]) and number < $2 order by stream_id, number desc"""

README: Final = """\
A part of the record of an installation of Minutebook, signed by it.

    python verify.py

checks it, offline and with nothing but Python 3.9 or newer: that every file is the one that was signed, that each
stream is whole and each of its facts chained to the one before, that each seal is signed and begins with what the
one before it covered, and that the newest seal covers the streams as they stand here. Ask the installation's
operator for its public key by another way, and name it with `--key`: a bundle that somebody made up carries a key
of theirs.

| File | Holds |
|---|---|
| `history.jsonl` | facts, stream by stream, one a line; `payload` and `metadata` are the texts that the digests cover |
| `blobs/<tenant group>/<SHA-256>` | content that facts name |
| `seals.jsonl` | all seals of the installation, each with the proof that it begins with the one before it |
| `inclusion.jsonl` | for each stream its newest sealed fact, with the proof that the newest seal covers it |
| `manifest.json`, `manifest.sig` | the SHA-256 of every file, and the Ed25519 signature of that, in hexadecimal |

A fact's digest is the SHA-256 of the digest before it in its stream, then
`["<stream>",<version>,"<category>","<type>",<event version>]`, then payload and metadata. A leaf of the tree is 16
bytes of stream id, 8 of version, 32 of digest; the tree is that of RFC 6962. A seal's signature is over its JSON
with sorted keys and without blanks, `signature` and `consistency` left out. Fields of persons that are encrypted
stay so: no keys are here.
"""

_SCRIPT: Final = Path(offline.__file__)


@dataclass(frozen=True, slots=True)
class Scope:
    """What goes into a bundle; nothing given means everything. Streams are always whole."""

    runs: tuple[UUID, ...] = ()
    tenant_group: UUID | None = None
    since: datetime | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "runs": [str(run) for run in self.runs],
            "tenant_group": None if self.tenant_group is None else str(self.tenant_group),
            "since": None if self.since is None else self.since.isoformat(),
        }


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written. `missing` counts content that facts name and the database does not have."""

    streams: int
    facts: int
    blobs: int
    missing: int
    seals: int
    sha256: str


@dataclass(slots=True)
class _Files:
    """The archive, and what the manifest will say of each file."""

    archive: zipfile.ZipFile
    listed: dict[str, dict[str, Any]] = field(default_factory=dict)

    def write(self, name: str, content: bytes) -> None:
        self.archive.writestr(name, content)
        self.listed[name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}

    async def lines(self, name: str, lines: AsyncIterator[Mapping[str, Any]]) -> int:
        """Write JSON lines as they come, and return how many came."""
        digest, length, count = hashlib.sha256(), 0, 0
        with self.archive.open(name, "w", force_zip64=True) as stream:
            async for line in lines:
                content = canonical(line) + b"\n"
                stream.write(content)
                digest.update(content)
                length, count = length + len(content), count + 1
        self.listed[name] = {"sha256": digest.hexdigest(), "bytes": length}
        return count


async def export(
    pool: asyncpg.Pool,
    out: Path,
    *,
    scope: Scope,
    key: SigningKey,
    ring: Keyring,
    now: datetime,
    mapper: Mapper | None = None,
    progress: Progress = silent,
) -> Exported:
    """Write a bundle, while the system runs. The file is there whole or not at all, for its owner alone.

    The leaves of all seals are held in memory for the proofs, about 200 bytes each.

    Raises:
        contracts.errors.Rejected: ``audit.nothing``, nothing in the history is of this scope.
        contracts.errors.Unavailable: the database does not answer, or a fact is of a newer release.
        OSError: the file cannot be written.
    """
    seals = await seals_of(pool)
    size = seals[-1].size if seals else 0
    tree = Tree([leaf.hash async for leaf in leaves_of(pool, below=size)])
    streams = await _streams(pool, scope)
    if not streams:
        raise Rejected("audit.nothing", "nothing in the history is of this run, tenant group or time")
    with _whole(out) as draft:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            files, named = _Files(archive), set[tuple[UUID, str]]()
            rows = _history(pool, streams, named, mapper or Mapper(), progress)
            facts = await files.lines("history.jsonl", rows)
            kept = await _blobs(pool, files, named, progress)
            files.write("seals.jsonl", written(seals, (), tree))
            await files.lines("inclusion.jsonl", _inclusion(pool, streams, tree, seals))
            files.write("README.md", README.encode())
            files.write("verify.py", _SCRIPT.read_bytes())
            manifest = canonical(
                {
                    "format": FORMAT,
                    "made_at": now.isoformat(),
                    "scope": scope.as_json(),
                    "streams": len(streams),
                    "facts": facts,
                    "blobs_missing": len(named) - kept,
                    "key_id": key.id,
                    "public": key.public.hex(),
                    "keys": {id_: public.hex() for id_, public in ring.keys.items()},
                    "files": files.listed,
                }
            )
            archive.writestr(offline.MANIFEST, manifest)
            archive.writestr(offline.SIGNATURE, key.sign(manifest).hex() + "\n")
        with draft.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    return Exported(len(streams), facts, kept, len(named) - kept, len(seals), sha256)


async def _streams(pool: asyncpg.Pool, scope: Scope) -> list[UUID]:
    """The streams of a scope, in order of id."""
    if scope.runs:
        found: set[UUID] = set()
        for run in scope.runs:
            found |= {row["stream_id"] for row in await fetch(pool, _RUNS_OWN, run)}
        rows = await fetch(
            pool, "select stream_id from workflow_history where version = 1 and stream_id = any($1)", list(found)
        )
        return sorted(row["stream_id"] for row in rows)
    rows = await fetch(
        pool,
        "select distinct stream_id from workflow_history where ($1::uuid is null or tenant_group = $1)"
        " and ($2::timestamptz is null or recorded_at >= $2) order by stream_id",
        scope.tenant_group,
        scope.since,
    )
    return [row["stream_id"] for row in rows]


async def _history(
    pool: asyncpg.Pool, streams: Sequence[UUID], named: set[tuple[UUID, str]], mapper: Mapper, progress: Progress
) -> AsyncIterator[dict[str, Any]]:
    """Streams whole, one after the other; what content they name goes into `named`."""
    for start in range(0, len(streams), PAGE):
        for row in await fetch(pool, _ROWS, streams[start : start + PAGE]):
            spilled = spilled_digest(row["payload"])
            if spilled is not None:
                named.add((row["tenant_group"], spilled))
            named.update((row["tenant_group"], ref.digest) for ref in refs_of(fact(row, mapper).event))
            yield {
                "era": row["era"],
                "xid": row["xid"],
                "position": row["position"],
                "stream_id": str(row["stream_id"]),
                "version": row["version"],
                "category": row["category"],
                "type": row["type"],
                "event_version": row["event_version"],
                "payload": row["payload"],
                "metadata": row["metadata"],
                "tenant_group": str(row["tenant_group"]),
                "tenant": str(row["tenant"]),
                "recorded_at": row["recorded_at"].isoformat(),
                "digest": row["digest"].hex(),
            }
        progress("streams", min(start + PAGE, len(streams)))


async def _blobs(pool: asyncpg.Pool, files: _Files, named: Iterable[tuple[UUID, str]], progress: Progress) -> int:
    """Write the content that was named; returns how much of it there is."""
    kept = 0
    for group, digest in sorted(named):
        rows = await fetch(
            pool, "select content from blobs where tenant_group = $1 and digest = $2", group, bytes.fromhex(digest)
        )
        for row in rows:
            files.write(f"blobs/{group}/{digest}", row["content"])
            kept += 1
            if kept % PAGE == 0:
                progress("blobs", kept)
    return kept


async def _inclusion(
    pool: asyncpg.Pool, streams: Sequence[UUID], tree: Tree, seals: Sequence[Seal]
) -> AsyncIterator[dict[str, Any]]:
    """The newest leaf of each stream, proven against the newest seal."""
    size = seals[-1].size if seals else 0
    for start in range(0, len(streams), PAGE):
        for row in await fetch(pool, _TIPS, streams[start : start + PAGE], size):
            yield {
                "number": row["number"],
                "stream_id": str(row["stream_id"]),
                "version": row["version"],
                "digest": row["digest"].hex(),
                "proof": [step.hex() for step in tree.inclusion(row["number"], size)],
            }


@contextmanager
def _whole(out: Path) -> Iterator[Path]:
    """A draft beside the file that takes its place in the end, readable by its owner alone."""
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        draft.touch(mode=0o600, exist_ok=False)
        yield draft
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)
