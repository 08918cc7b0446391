"""From messages to what a service handles: addresses of facts, and streams that are due."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from contracts.base import Actor
from contracts.envelope import Address, Envelope, Wake
from contracts.envelope import Owner as ServiceName
from contracts.errors import MinutebookError
from libs.bus.disposition import of, parse
from libs.bus.port import ACK, BatchHandler, Delivered, Disposition
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

    A message is acked when none of its facts' streams or runs failed; a failure's disposition is its error's.
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
            item
            if isinstance(item, Disposition)
            else _worst([failures.get(f.stream_id) or failures.get(f.correlation) for f in item.facts], message)
            for item, message in zip(read, batch, strict=True)
        ]

    return on_batch


def wake_handler(handle: Callable[[str, Sequence[UUID]], Awaitable[Failures]]) -> BatchHandler:
    """Handle wakes by category: `handle("run", stream_ids)`. A failed wake comes again by the clock: all are acked."""

    async def on_batch(batch: Sequence[Delivered]) -> Sequence[Disposition]:
        due: dict[str, dict[UUID, None]] = {}
        dispositions: list[Disposition] = []
        for message in batch:
            try:
                wake = parse(Wake, message.data)
            except MinutebookError as error:
                dispositions.append(of(error, deliveries=message.deliveries))
                continue
            dispositions.append(ACK)
            due.setdefault(wake.category, {}).update(dict.fromkeys(wake.stream_ids))
        for category, stream_ids in due.items():
            failures = await handle(category, list(stream_ids))
            for stream_id, failure in failures.items():
                say = _log.debug if told(failure) else _log.warning
                say("wake failed", category=category, stream_id=str(stream_id), code=failure.code)
        return dispositions

    return on_batch


def _worst(errors: Sequence[MinutebookError | None], message: Delivered) -> Disposition:
    """Of one message's failures the one that is worth repeating decides: facts must not be lost with a term."""
    dispositions = [of(error, deliveries=message.deliveries) for error in errors if error is not None]
    for verdict in ("nak", "term"):
        for disposition in dispositions:
            if disposition.verdict == verdict:
                return disposition
    return ACK
