"""Appends as the rows that they become, digests and spilled payloads included: what both adapters write."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from contracts.base import Event, Metadata
from contracts.errors import Broken
from libs.eventstore.heads import Heads, heads_of
from libs.eventstore.mapper import Mapper, chain, spill
from libs.eventstore.port import Append, BirthRow, Written

BEAR_THEIR_OWN: Final = frozenset({"effect"})
"""Categories in whose appends streams of the same category may be born.

Their births are locked after their own heads, out of the order of stream ids. That is sound where the id of what is
born is derived from its bearer and bears nothing itself: no two statements can wait for each other.
"""


class EventRow(NamedTuple):
    """One row of the history. `birth` is the number of the birth that it belongs to, None for an append's own."""

    birth: int | None
    written: Written
    event: Event
    event_version: int
    payload: str
    metadata: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class BirthItem:
    """A birth of a batch, numbered from 1 over the whole batch, with the stream whose append carries it."""

    number: int
    parent: UUID
    row: BirthRow
    metadata: Metadata
    digest: bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of appends of one category, ready to be written."""

    heads: Heads
    appends: tuple[Append, ...]
    digests: Mapping[UUID, bytes]
    births: tuple[BirthItem, ...]
    events: tuple[EventRow, ...]
    blobs: tuple[tuple[UUID, UUID, str, bytes], ...]
    """(the append's stream, tenant group, digest, content)"""


def persons_of(appends: Sequence[Append], mapper: Mapper) -> dict[UUID, UUID]:
    """Whose texts appends hold, each with the tenant group: their keys must be known before `prepare`."""
    found: dict[UUID, UUID] = {}
    for append in appends:
        facts = [(append.stream_id, event) for event in append.events]
        facts += [(birth.stream_id, birth.event) for birth in append.births]
        found.update(mapper.persons(append.metadata, facts))
    return found


def prepare(category: str, appends: Sequence[Append], mapper: Mapper) -> Batch:
    """Turn appends into rows.

    Raises:
        contracts.errors.Broken: something of it could never be written, as the message says.
    """
    heads = heads_of(category)
    _check(heads, appends)
    digests: dict[UUID, bytes] = {}
    births: list[BirthItem] = []
    events: list[EventRow] = []
    blobs: list[tuple[UUID, UUID, str, bytes]] = []

    for append in appends:
        group, digest = append.metadata.tenant_group, append.digest
        own = (append.metadata, mapper.write_metadata(append.metadata))
        blobs += [(append.stream_id, group, key, content) for key, content in append.blobs.items()]
        facts: list[tuple[int | None, str, UUID, int, Event]] = [
            (None, category, append.stream_id, append.version + n, event) for n, event in enumerate(append.events, 1)
        ]
        first = len(births) + 1
        facts += [(n, b.category, b.stream_id, 1, b.event) for n, b in enumerate(append.births, first)]
        for number, kind, stream_id, version, event in facts:
            previous = digest if number is None else b""
            metadata = own if number is None else _of_birth(mapper, own, append.births[number - first])
            row, spilled = _row(mapper, number, kind, stream_id, version, event, metadata, previous)
            events.append(row)
            blobs += [(append.stream_id, group, key, content) for key, content in spilled.items()]
            if number is None:
                digest = row.digest
            else:
                births.append(
                    BirthItem(number, append.stream_id, append.births[number - first], metadata[0], row.digest)
                )
        digests[append.stream_id] = digest
    return Batch(heads, tuple(appends), digests, tuple(births), tuple(events), tuple(blobs))


def _of_birth(mapper: Mapper, parents: tuple[Metadata, str], birth: BirthRow) -> tuple[Metadata, str]:
    """The metadata of a birth and its text: its parent's, but for the run that it belongs to."""
    if birth.correlation is None or birth.correlation == parents[0].correlation:
        return parents
    own = parents[0].model_copy(update={"correlation": birth.correlation})
    return own, mapper.write_metadata(own)


def _row(
    mapper: Mapper,
    birth: int | None,
    category: str,
    stream_id: UUID,
    version: int,
    event: Event,
    metadata: tuple[Metadata, str],
    previous: bytes,
) -> tuple[EventRow, Mapping[str, bytes]]:
    type_, event_version, state = mapper.write(event, stream_id)
    payload, spilled = spill(state)
    digest = chain(
        previous,
        stream_id=stream_id,
        version=version,
        category=category,
        type_=type_,
        event_version=event_version,
        payload=payload,
        metadata=metadata[1],
    )
    written = Written(category, stream_id, version, type_, metadata[0])
    return EventRow(birth, written, event, event_version, payload, metadata[1], digest), spilled


def _check(heads: Heads, appends: Sequence[Append]) -> None:
    """Refuse what is a mistake of the caller whatever the history holds."""
    if len({a.stream_id for a in appends}) != len(appends):
        raise _mistake("a stream stands twice in one batch")
    for append in appends:
        heads.check(append.columns)
        for birth in append.births:
            heads_of(birth.category).check(birth.columns)
            if birth.category == heads.category and birth.category not in BEAR_THEIR_OWN:
                raise _mistake(f"a birth in its own category, {heads.category}")
            if birth.work_subject is not None and birth.category != "attempt":
                raise _mistake(f"a birth of {birth.category} with a work subject; only attempts are claimed")
        if any(guard.category == heads.category for guard in append.guards):
            raise _mistake(f"a guard on its own category, {heads.category}")
        if not append.events:
            raise _mistake("an append without events; `move_wakes` moves a wake alone")
        if not heads.claimable and (append.claim or append.set_claim or append.release):
            raise _mistake(f"a claim on {heads.category}, which has none")
        if append.release and (append.set_claim or append.version == 0):
            raise _mistake("a claim released in the statement that sets it, or on a new stream")


def _mistake(what: str) -> Broken:
    return Broken("eventstore.append", f"{what}; nothing of the batch was written")
