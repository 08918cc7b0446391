"""The front door of webhooks: believe nothing, store once, answer only then."""

import asyncio
import hashlib
from datetime import timedelta
from http import HTTPStatus
from typing import Final

from fastapi import Request

from contracts import ids
from contracts.base import Principal
from contracts.commands import NoteDifferentBody, NoteFailingSource
from contracts.envelope import InboundNotice
from contracts.errors import MinutebookError, Rejected, Unavailable
from contracts.events.definition import SourceSynced
from contracts.replies import BodyNoted, SourceNoted
from contracts.subjects import inbound
from libs.adapters import normalise, verify_signature
from libs.bus.port import Message
from libs.canonical import blob, parse
from libs.domain import definition
from libs.eventstore.port import Delivery, Loaded
from libs.faultpoints import faultpoint
from libs.process.asks import ask
from libs.telemetry.logs import get_logger
from libs.telemetry.tracing import current_traceparent
from minutebook.models import DeliveryAccepted
from services.api import bodies
from services.api.door import Door, require_scope

NOTICE_TIMEOUT: Final = timedelta(seconds=2)
"""How long a caller waits for the bus after its delivery is safe. Without the notice the sweep finds the delivery."""

SCOPE: Final = "events"

_log = get_logger("webhooks")


async def receive(door: Door, request: Request, source_id: str) -> DeliveryAccepted:
    """Take a delivery: known source, size, authenticity, form; then it is stored, and then it is accepted.

    Raises:
        contracts.errors.Rejected: 404 undeclared source, 413, 401, 429, 422 what the adapter misses.
        contracts.errors.Malformed: 400, not strict JSON.
        contracts.errors.Unavailable: the source's secret is not configured, or the database does not answer.
    """
    load = await door.tools.store.load(definition.CATEGORY.name, {ids.source(source_id): 0})
    loaded = load.streams[ids.source(source_id)]
    source = _declared(loaded, source_id)
    by = _signer(loaded, source_id)
    try:
        return await _take(door, request, source, loaded, by)
    except Rejected as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            await _note_refusal(door, source_id, error.code, by)
        raise


async def _take(door: Door, request: Request, source: SourceSynced, loaded: Loaded, by: Principal) -> DeliveryAccepted:
    """Take a delivery of a declared source. `by` is who signs."""
    source_id = source.source_id
    if source.secret_ref is None:
        by = await _require_token(door, request, loaded, source_id)
    bytes_max = door.tools.settings.webhook_bytes_max
    raw = await bodies.read(request, bytes_max=bytes_max)
    if source.secret_ref is not None:
        header = request.headers.get(source.signature_header)
        known = door.tools.secrets.overlapping(source.secret_ref)
        if not any(verify_signature(raw, header, secret.encode()) for secret in known):
            raise Rejected(
                "webhook.signature",
                f"send `{source.signature_header}: sha256=<hex>`, the HMAC-SHA256 of the raw body under the secret "
                f"of source {source_id!r}",
                status=401,
            )
    door.refusals.taken(source_id)
    door.rates.take(source_id)  # what is not authentic must not use up what the source may send
    body = parse(raw, what="the body", bytes_max=bytes_max)
    found = normalise(source.adapter, body, dict(request.headers))
    payload, content = blob(found.payload)
    assert loaded.tenant_group is not None
    assert loaded.tenant is not None
    delivery = Delivery(
        id=ids.inbound(source_id, found.external_id),
        tenant_group=loaded.tenant_group,
        tenant=loaded.tenant,
        source=source_id,
        adapter=source.adapter,
        external_id=found.external_id,
        event=found.event,
        keys=found.keys,
        payload=payload,
        body_sha256=hashlib.sha256(raw).hexdigest(),
        traceparent=current_traceparent(),
    )
    if not await door.tools.store.accept(delivery, {payload.digest: content}):
        await _note_other_body(door, delivery, by)
        return DeliveryAccepted(status="duplicate")
    faultpoint("inbound.accepted")
    await _notify(door, delivery)
    return DeliveryAccepted(status="accepted", event_id=delivery.id)


def _declared(loaded: Loaded, source_id: str) -> SourceSynced:
    state = definition.CATEGORY.fold(tuple(recorded.event for recorded in loaded.events))
    if not isinstance(state.current, SourceSynced):
        raise Rejected("source.not_found", f"there is no event source {source_id!r}", status=404)
    return state.current


def _signer(loaded: Loaded, source_id: str) -> Principal:
    """Who knows the source's secret, as the record names them."""
    assert loaded.tenant_group is not None
    assert loaded.tenant is not None
    return Principal(
        kind="api_key",
        id=ids.source(source_id),
        name=f"signature of {source_id}",
        tenant_group=loaded.tenant_group,
        tenant=loaded.tenant,
    )


async def _require_token(door: Door, request: Request, loaded: Loaded, source_id: str) -> Principal:
    """A source without a secret takes a token of its tenant group; to any other it does not exist."""
    caller = await door.auth.authenticate(request.headers)
    if caller.tenant_group != loaded.tenant_group:
        raise Rejected("source.not_found", f"there is no event source {source_id!r}", status=404)
    require_scope(caller, SCOPE)
    return caller


async def _note_refusal(door: Door, source_id: str, code: str, by: Principal) -> None:
    """Have people told of a source that fails to authenticate again and again. The delivery is refused all the same."""
    failing = door.refusals.refused(source_id)
    if failing is None:
        return
    _log.warning("source fails to authenticate", source=source_id, refused=failing.refused)
    command = NoteFailingSource(
        **await door.opening(by),
        source_id=source_id,
        reason=code,
        refused=failing.refused,
        since=await door.clock.now() - failing.since,
    )
    try:
        await ask(door.tools.bus, command, SourceNoted, timeout=NOTICE_TIMEOUT)
    except Unavailable as error:
        door.refusals.untold(source_id)
        _log.warning("a failing source was not noted", source=source_id, code=error.code)


async def _note_other_body(door: Door, delivery: Delivery, by: Principal) -> None:
    """Have it noted that an external id came again with another body. The delivery is a duplicate all the same."""
    if await door.tools.store.body_of(delivery.id) in (None, delivery.body_sha256):
        return
    _log.warning("duplicate with another body", source=delivery.source, delivery_id=str(delivery.id))
    command = NoteDifferentBody(**await door.opening(by), inbound_id=delivery.id, body_sha256=delivery.body_sha256)
    try:
        await ask(door.tools.bus, command, BodyNoted, timeout=NOTICE_TIMEOUT)
    except MinutebookError as error:  # also one that lost to other bodies again and again: no news for the sender
        _log.warning("another body was not noted", delivery_id=str(delivery.id), code=error.code)


async def _notify(door: Door, delivery: Delivery) -> None:
    """Ring ingest's bell. The delivery is stored: a bus that is away costs latency and no more."""
    notice = Message(
        subject=inbound(delivery.source),
        data=InboundNotice(delivery_ids=(delivery.id,)).model_dump_json().encode(),
        id=f"inbound.{delivery.id}",
    )
    try:
        async with asyncio.timeout(NOTICE_TIMEOUT.total_seconds()):
            await door.tools.bus.publish([notice])
    except (Unavailable, TimeoutError):
        door.notices.away()
    else:
        door.notices.back()
