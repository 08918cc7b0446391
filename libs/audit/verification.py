"""The whole check: chains, head rows and snapshots, seals, and the ledger of writes."""

from dataclasses import dataclass
from typing import Any, Final

import asyncpg

from libs.audit.findings import Finding, Grade, Part, Progress, silent
from libs.audit.ledger import check_ledger
from libs.audit.sealed import Sealed, check_seals
from libs.audit.signing import Keyring
from libs.audit.witness import Witness
from libs.domain.categories import CATEGORIES
from libs.eventstore.mapper import Mapper
from libs.eventstore.port import Difference
from libs.eventstore.verify import verify

_OF_KIND: Final[dict[str, tuple[Grade, Part]]] = {
    "chain": ("tampered", "chain"),
    "content": ("tampered", "content"),
    "missing_events": ("tampered", "chain"),
    "missing_head": ("damaged", "head"),
    "head": ("damaged", "head"),
    "snapshot": ("damaged", "snapshot"),
}


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, and everything that is wrong with it."""

    streams: int
    events: int
    effects: int
    sealed: Sealed
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings

    def as_json(self) -> dict[str, Any]:
        last = self.sealed.last
        return {
            "ok": self.ok,
            "streams": self.streams,
            "events": self.events,
            "effects": self.effects,
            "seals": self.sealed.seals,
            "leaves": self.sealed.leaves,
            "last_seal": None if last is None else last.said(),
            "findings": [finding.as_json() for finding in self.findings],
        }


async def check_record(
    pool: asyncpg.Pool,
    ring: Keyring,
    *,
    witness: Witness | None = None,
    mapper: Mapper | None = None,
    progress: Progress = silent,
) -> Report:
    """Check everything, while the system runs.

    Raises:
        contracts.errors.Unavailable: the database does not answer, or a fact is of a newer release.
    """
    record = await verify(pool, CATEGORIES, mapper=mapper, contents=True, progress=progress)
    sealed = await check_seals(pool, ring, witness=witness, progress=progress)
    ledger = await check_ledger(pool, mapper=mapper, progress=progress)
    return Report(
        streams=record.streams,
        events=record.events,
        effects=ledger.effects,
        sealed=sealed,
        findings=(*map(_finding, record.differences), *sealed.findings, *ledger.findings),
    )


def _finding(difference: Difference) -> Finding:
    grade, part = _OF_KIND[difference.kind]
    return Finding(grade, part, difference.detail, difference.category, difference.stream_id)
