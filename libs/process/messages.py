"""From messages to what a service handles: addresses of facts, and streams that are due."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from contracts.base import Actor
from contracts.envelope import Address, Envelope, Wake
from contracts.envelope import Owner as ServiceName
from contracts.errors import MinutebookError
from libs.bus.disposition import of, parse
from libs.bus.port import ACK, BatchHandler, Delivered, Disposition, Failure
from libs.process.told import told
from libs.telemetry.logs import get_logger

K = TypeVar("K")

_log = get_logger("messages")

Failures = Mapping[UUID, MinutebookError]
"""What went wrong, by stream; empty when nothing did."""


def actor(service: ServiceName) -> Actor:
    """A service that acts by itself, as the record names it."""
    return Actor(kind="system", name=service)


def envelope_handler(handle: Callable[[str, Sequence[Address]], Awaitable[Failures]]) -> BatchHandler:
    """Handle envelopes by event type: `handle("run.created", addresses)`, once per type in a batch.

    A message is acked when none of its facts' streams or runs failed; a failure's disposition is its error's, and names
    the facts that it is of.
    """

    async def on_batch(batch: Sequence[Delivered]) -> Sequence[Disposition]:
        facts: dict[str, list[Address]] = {}
        read: list[Envelope | Disposition] = []
        for message in batch:
            try:
                envelope = parse(Envelope, message.data)
            except MinutebookError as error:
                read.append(of(error, deliveries=message.deliveries))
                continue
            read.append(envelope)
            facts.setdefault(message.subject.removeprefix("history."), []).extend(envelope.facts)
        failures: dict[UUID, MinutebookError] = {}
        for type_, addresses in facts.items():
            failures.update(await handle(type_, addresses))
        return [
            item if isinstance(item, Disposition) else _worst(item, failures, message)
            for item, message in zip(read, batch, strict=True)
        ]

    return on_batch


def wake_handler(handle: Callable[[str, Sequence[UUID]], Awaitable[Failures]]) -> BatchHandler:
    """Handle wakes by category: `handle("run", stream_ids)`. A failed wake comes again by the clock: all are acked."""

    async def on_batch(batch: Sequence[Delivered]) -> Sequence[Disposition]:
        due: dict[str, dict[UUID, None]] = {}
        read: list[Wake | Disposition] = []
        for message in batch:
            try:
                wake = parse(Wake, message.data)
            except MinutebookError as error:
                read.append(of(error, deliveries=message.deliveries))
                continue
            read.append(wake)
            due.setdefault(wake.category, {}).update(dict.fromkeys(wake.stream_ids))
        failed: dict[tuple[str, UUID], MinutebookError] = {}
        for category, stream_ids in due.items():
            failures = await handle(category, list(stream_ids))
            for stream_id, failure in failures.items():
                say = _log.debug if told(failure) else _log.warning
                say("wake failed", category=category, stream_id=str(stream_id), code=failure.code)
                failed[category, stream_id] = failure
        return [item if isinstance(item, Disposition) else _woken(item, failed) for item in read]

    return on_batch


def _woken(wake: Wake, failed: dict[tuple[str, UUID], MinutebookError]) -> Disposition:
    """Acked; a stream that failed and stands in several wakes of a batch is named once."""
    failures = tuple(
        Failure(error, Wake(category=wake.category, stream_ids=(stream_id,)).model_dump_json().encode(), stream_id)
        for stream_id in wake.stream_ids
        if (error := failed.pop((wake.category, stream_id), None)) is not None
    )
    return replace(ACK, failures=failures)


def _worst(envelope: Envelope, failures: Failures, message: Delivered) -> Disposition:
    """Of one message's failures the one that is worth repeating decides: facts must not be lost with a term."""
    failed = [
        Failure(error, envelope.model_copy(update={"facts": (fact,)}).model_dump_json().encode(), fact.stream_id)
        for fact in envelope.facts
        if (error := failures.get(fact.stream_id) or failures.get(fact.correlation)) is not None
    ]
    dispositions = [of(failure.error, deliveries=message.deliveries) for failure in failed]
    for verdict in ("nak", "term"):
        for disposition in dispositions:
            if disposition.verdict == verdict:
                return replace(disposition, failures=tuple(failed))
    return ACK
