"""Wiring of the effects service."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from contracts.commands import NoteFailingSource, RetryNotice
from contracts.errors import Rejected
from contracts.subjects import DURABLES
from libs.config import Settings
from libs.domain import notice
from libs.domain.effect import CALL_TIMEOUT_MAX, CATEGORY, OVERDUE_AFTER, decide
from libs.mcp import call_tool
from libs.owner import Owner, Publisher
from libs.process import Service, Tools, envelope_handler, wake_handler
from libs.process.asks import answer
from libs.process.messages import Failures
from libs.sealing import Sealing
from libs.vault import Vault
from services.effects.connectors import Connectors
from services.effects.grants import Grants
from services.effects.handlers import Handlers
from services.effects.ledger import Call, Ledger
from services.effects.notices.app import build as build_notices
from services.effects.turns import Turns


def build(tools: Tools, call: Call = call_tool) -> Service:
    """Connect the handlers to the durables of the service; nothing runs before `start`. `call` makes the tool calls."""
    store, bus, settings = tools.store, tools.bus, tools.settings
    publisher = Publisher(bus, store)
    owner = Owner(CATEGORY, decide, store=store, publisher=publisher)
    ledger = Ledger(
        owner=owner,
        store=store,
        connectors=Connectors(store, tools.secrets, Grants(store, Vault(tools.pool, Sealing(tools.secrets)))),
        turns=Turns(calls_max=settings.effect_calls, calls_per_server_max=settings.effect_calls_per_server),
        start_within=_start_within(settings),
        call=call,
    )
    handlers = Handlers(owner, store, ledger)
    durables = {durable.name: durable for durable in DURABLES}
    bus.subscribe(durables["effects-history"], envelope_handler(handlers.on_facts))
    notices = build_notices(tools, publisher)
    bus.subscribe(durables["effects-notices"], envelope_handler(notices.handlers.on_facts))
    answer(bus, store, RetryNotice, notices.asks.retry)
    answer(bus, store, NoteFailingSource, notices.asks.note_failing_source)

    async def on_wake(category: str, stream_ids: Sequence[UUID]) -> Failures:
        """Ours as their clock says; what still waits for somebody, though not ours, in case it was never told."""
        if category == notice.CATEGORY.name:
            return await notices.handlers.on_wake(stream_ids)
        failures = await handlers.on_wake(category, stream_ids) if category == CATEGORY.name else {}
        return {**failures, **await notices.handlers.on_open(category, stream_ids)}

    bus.subscribe(durables["effects-wake"], wake_handler(on_wake))

    async def drain() -> None:
        within = timedelta(seconds=settings.drain_seconds)
        await asyncio.gather(ledger.drain(within), notices.drain(within))

    return Service("effects", tools, drains=[drain])


def _start_within(settings: Settings) -> timedelta:
    """How late a call may start: so that with the longest timeout and the margin it has ended before it is doubted."""
    latest = OVERDUE_AFTER - CALL_TIMEOUT_MAX - timedelta(seconds=settings.effect_margin_seconds)
    wanted = timedelta(seconds=settings.effect_start_seconds)
    if wanted > latest:
        raise Rejected(
            "settings.invalid",
            "MINUTEBOOK_EFFECT_START_SECONDS and MINUTEBOOK_EFFECT_MARGIN_SECONDS add up to more than "
            f"{(OVERDUE_AFTER - CALL_TIMEOUT_MAX).total_seconds():g} s, the time that a pending effect allows them",
        )
    return wanted
