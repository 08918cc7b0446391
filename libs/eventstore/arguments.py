"""A batch as the array parameters of its statement."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from libs.eventstore.adapter import digest_bytes
from libs.eventstore.heads import Heads, heads_of
from libs.eventstore.port import OutboxToken
from libs.eventstore.rows import Batch, BirthItem, EventRow
from libs.eventstore.statements import NO_CLAIM, Shape, lock_ordered

Arrays = dict[str, list[Any]]


def shape_of(batch: Batch, *, forget: bool) -> Shape:
    """Return which parts the statement of this batch needs."""
    return Shape(
        category=batch.heads.category,
        guards=lock_ordered({guard.category for append in batch.appends for guard in append.guards}),
        deadlines=any(append.deadline is not None for append in batch.appends),
        births=lock_ordered({birth.row.category for birth in batch.births}),
        ready=any(append.ready for append in batch.appends) or any(b.row.work_subject for b in batch.births),
        blobs=bool(batch.blobs),
        forget=forget,
    )


def arguments(batch: Batch, acked: Sequence[OutboxToken]) -> Arrays:
    """Return every array by the name that the statement gives it; a statement picks those that it has."""
    values = _heads(batch) | _events(batch.events)
    births: dict[str, list[BirthItem]] = {}
    for birth in batch.births:
        births.setdefault(birth.row.category, []).append(birth)
    for category, born in births.items():
        values |= _births(heads_of(category), born)
    values |= _columns("guard", list(_guards(batch)))
    late = [{"item": a.stream_id, "deadline": a.deadline} for a in batch.appends if a.deadline is not None]
    values |= _columns("late", late)
    ready = [
        {"parent": a.stream_id, "stream_id": attempt, "tenant_group": a.metadata.tenant_group, "subject": subject}
        for a in batch.appends
        for attempt, subject in a.ready.items()
    ]
    values |= _columns("ready", ready, "parent", "stream_id", "tenant_group", "subject")
    values |= {
        "blob.parent": [parent for parent, _, _, _ in batch.blobs],
        "blob.tenant_group": [group for _, group, _, _ in batch.blobs],
        "blob.digest": [digest_bytes(digest) for _, _, digest, _ in batch.blobs],
        "blob.content": [content for _, _, _, content in batch.blobs],
        "token.era": [token.era for token in acked],
        "token.xid": [str(token.xid) for token in acked],
    }
    return values


def _columns(prefix: str, rows: Sequence[Mapping[str, Any]], *names: str) -> Arrays:
    """Rows as columns. `names` are for parameters that a statement may have though there is no row."""
    keys: Iterable[str] = rows[0] if rows else names
    return {f"{prefix}.{name}": [row[name] for row in rows] for name in keys}


def _heads(batch: Batch) -> Arrays:
    appends = batch.appends
    values: Arrays = {
        "i.stream_id": [a.stream_id for a in appends],
        "i.tenant_group": [a.metadata.tenant_group for a in appends],
        "i.tenant": [a.metadata.tenant for a in appends],
        "i.version": [a.version + len(a.events) for a in appends],
        "i.appended": [len(a.events) for a in appends],
        "i.state": [a.state for a in appends],
        "i.digest": [batch.digests[a.stream_id] for a in appends],
        "i.wake_at": [a.wake_at for a in appends],
    }
    values |= _derived("i", batch.heads, [a.columns for a in appends])
    if batch.heads.claimable:
        values["i.claim"] = [NO_CLAIM if a.release else a.set_claim for a in appends]
        values["i.gate"] = [a.claim for a in appends]
    return values


def _births(heads: Heads, births: Sequence[BirthItem]) -> Arrays:
    columns: Arrays = {
        "birth_number": [b.number for b in births],
        "bearer": [b.parent for b in births],
        "work_subject": [b.row.work_subject for b in births],
        "stream_id": [b.row.stream_id for b in births],
        "tenant_group": [b.metadata.tenant_group for b in births],
        "tenant": [b.metadata.tenant for b in births],
        "state": [b.row.state for b in births],
        "digest": [b.digest for b in births],
        "wake_at": [b.row.wake_at for b in births],
    }
    prefix = f"birth_{heads.category}"
    return {f"{prefix}.{name}": column for name, column in columns.items()} | _derived(
        prefix, heads, [b.row.columns for b in births]
    )


def _derived(prefix: str, heads: Heads, rows: Sequence[Mapping[str, Any]]) -> Arrays:
    return {
        f"{prefix}.{name}": [json.dumps(list(row[name])) for row in rows]
        if kind == "text[]"
        else [row[name] for row in rows]
        for name, kind in heads.columns.items()
    }


def _guards(batch: Batch) -> Iterable[dict[str, Any]]:
    guards = [(append.stream_id, guard) for append in batch.appends for guard in append.guards]
    for number, (item, guard) in enumerate(guards):
        yield {
            "n": number,
            "item": item,
            "category": guard.category,
            "stream_id": guard.stream_id,
            "states": ",".join(sorted(guard.states)),
        }


def _events(events: Sequence[EventRow]) -> Arrays:
    written = [event.written for event in events]
    return {
        "e.birth": [event.birth for event in events],
        "e.stream_id": [w.stream_id for w in written],
        "e.version": [w.version for w in written],
        "e.category": [w.category for w in written],
        "e.type": [w.type for w in written],
        "e.event_version": [event.event_version for event in events],
        "e.payload": [event.payload for event in events],
        "e.metadata": [event.metadata for event in events],
        "e.tenant_group": [w.metadata.tenant_group for w in written],
        "e.tenant": [w.metadata.tenant for w in written],
        "e.digest": [event.digest for event in events],
    }
