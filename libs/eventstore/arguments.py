"""A batch as the array parameters of its statement."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from libs.eventstore.adapter import digest_bytes
from libs.eventstore.heads import Heads, heads_of
from libs.eventstore.port import Append, OutboxToken
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
    values = _columns("i", [_head(batch, append) for append in batch.appends])
    births: dict[str, list[dict[str, Any]]] = {}
    for birth in batch.births:
        births.setdefault(birth.row.category, []).append(_birth(birth))
    for category, rows in births.items():
        values |= _columns(f"birth_{category}", rows)
    values |= _columns("guard", list(_guards(batch)))
    late = [{"item": a.stream_id, "deadline": a.deadline} for a in batch.appends if a.deadline is not None]
    values |= _columns("late", late)
    ready = [
        {"parent": a.stream_id, "stream_id": attempt, "tenant_group": a.metadata.tenant_group, "subject": subject}
        for a in batch.appends
        for attempt, subject in a.ready.items()
    ]
    values |= _columns("ready", ready, "parent", "stream_id", "tenant_group", "subject")
    values |= _columns(
        "blob",
        [
            {"parent": parent, "tenant_group": group, "digest": digest_bytes(digest), "content": content}
            for parent, group, digest, content in batch.blobs
        ],
    )
    values |= _columns("e", [_event(event) for event in batch.events])
    values |= _columns("token", [{"era": token.era, "xid": str(token.xid)} for token in acked])
    return values


def _columns(prefix: str, rows: Sequence[Mapping[str, Any]], *names: str) -> Arrays:
    """Rows as columns. `names` are for parameters that a statement may have though there is no row."""
    keys: Iterable[str] = rows[0] if rows else names
    return {f"{prefix}.{name}": [row[name] for row in rows] for name in keys}


def _head(batch: Batch, append: Append) -> dict[str, Any]:
    row = {
        "stream_id": append.stream_id,
        "tenant_group": append.metadata.tenant_group,
        "tenant": append.metadata.tenant,
        "version": append.version + len(append.events),
        "appended": len(append.events),
        "state": append.state,
        "digest": batch.digests[append.stream_id],
        "wake_at": append.wake_at,
    } | _derived(batch.heads, append.columns)
    if batch.heads.claimable:
        row |= {"claim": NO_CLAIM if append.release else append.set_claim, "gate": append.claim}
    return row


def _birth(birth: BirthItem) -> dict[str, Any]:
    return {
        "birth_number": birth.number,
        "bearer": birth.parent,
        "work_subject": birth.row.work_subject,
        "stream_id": birth.row.stream_id,
        "tenant_group": birth.metadata.tenant_group,
        "tenant": birth.metadata.tenant,
        "state": birth.row.state,
        "digest": birth.digest,
        "wake_at": birth.row.wake_at,
    } | _derived(heads_of(birth.row.category), birth.row.columns)


def _derived(heads: Heads, columns: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: json.dumps(list(columns[name])) if kind == "text[]" else columns[name]
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


def _event(event: EventRow) -> dict[str, Any]:
    written = event.written
    return {
        "birth": event.birth,
        "stream_id": written.stream_id,
        "version": written.version,
        "category": written.category,
        "type": written.type,
        "event_version": event.event_version,
        "payload": event.payload,
        "metadata": event.metadata,
        "tenant_group": written.metadata.tenant_group,
        "tenant": written.metadata.tenant,
        "digest": event.digest,
    }
