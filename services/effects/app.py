"""Wiring of the effects service."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from contracts.commands import InspectServers, NoteFailingSource, ProbeEffect, RetryNotice, SettleEffect
from contracts.subjects import DURABLES
from libs.domain import notice
from libs.domain.categories import CATEGORIES
from libs.domain.effect import CATEGORY, decide
from libs.mcp import call_tool, list_tools
from libs.owner import Owner, Publisher
from libs.process import Service, Tools, envelope_handler, wake_handler
from libs.process.asks import answer
from libs.process.messages import Failures
from libs.sealing import Sealing
from libs.vault import Vault
from services.effects.connectors import Connectors
from services.effects.gates import Gates
from services.effects.grants import Grants
from services.effects.handlers import Handlers
from services.effects.inspection import Inspection, ListTools
from services.effects.ledger import CallTool, Ledger
from services.effects.notices.app import build as build_notices
from services.effects.probes import Probes
from services.effects.turns import Turns
from services.effects.verdicts import Verdicts


def build(tools: Tools, call: CallTool = call_tool, list_: ListTools = list_tools) -> Service:
    """Connect the handlers to the durables of the service; nothing runs before `start`.

    `call` makes the tool calls, `list_` reads which tools there are.
    """
    store, bus, settings = tools.store, tools.bus, tools.settings
    publisher = Publisher(bus, store)
    writes = _writes(tools, publisher, call)
    answer(bus, store, SettleEffect, writes.verdicts.settle)
    answer(bus, store, ProbeEffect, writes.verdicts.probe)
    answer(bus, store, InspectServers, Inspection(writes.connectors, list_=list_).inspect)
    durables = {durable.name: durable for durable in DURABLES}
    bus.subscribe(durables["effects-history"], envelope_handler(writes.handlers.on_facts))
    notices = build_notices(tools, publisher)
    bus.subscribe(durables["effects-notices"], envelope_handler(notices.handlers.on_facts))
    answer(bus, store, RetryNotice, notices.asks.retry)
    answer(bus, store, NoteFailingSource, notices.asks.note_failing_source)

    async def on_wake(category: str, stream_ids: Sequence[UUID]) -> Failures:
        """Ours as their clock says; what still waits for somebody, though not ours, in case it was never told."""
        if category == notice.CATEGORY.name:
            return await notices.handlers.on_wake(stream_ids)
        failures = await writes.handlers.on_wake(category, stream_ids) if category == CATEGORY.name else {}
        return {**failures, **await notices.handlers.on_open(category, stream_ids)}

    bus.subscribe(durables["effects-wake"], wake_handler(on_wake))

    async def drain() -> None:
        within = timedelta(seconds=settings.drain_seconds)
        await asyncio.gather(writes.probes.drain(), writes.ledger.drain(within), notices.drain(within))

    return Service("effects", tools, drains=[drain])


@dataclass(frozen=True, slots=True)
class _Writes:
    """The parts that effects go through."""

    connectors: Connectors
    ledger: Ledger
    probes: Probes
    verdicts: Verdicts
    handlers: Handlers


def _writes(tools: Tools, publisher: Publisher, call: CallTool) -> _Writes:
    store, settings = tools.store, tools.settings

    def run_url(run_id: UUID) -> str:
        return settings.link(f"/runs/{run_id}")

    owner = Owner(CATEGORY, decide, store=store, publisher=publisher, categories=CATEGORIES)
    gates = Gates()
    connectors = Connectors(
        store,
        tools.secrets,
        Grants(store, Vault(tools.pool, Sealing(tools.secrets))),
        commands=frozenset(settings.mcp_commands.split()),
    )
    ledger = Ledger(
        owner=owner,
        store=store,
        connectors=connectors,
        turns=Turns(
            calls_max=settings.effect_calls, calls_per_server_max=settings.effect_calls_per_server, gates=gates
        ),
        gates=gates,
        start_within=timedelta(seconds=settings.effect_start_seconds),
        margin=timedelta(seconds=settings.effect_margin_seconds),
        run_url=run_url,
        call=call,
    )
    probes = Probes(
        owner=owner,
        store=store,
        connectors=connectors,
        gates=gates,
        busy=ledger.busy,
        run_url=run_url,
        call=call,
    )
    verdicts = Verdicts(owner=owner, store=store, ledger=ledger, probes=probes, connectors=connectors, run_url=run_url)
    return _Writes(connectors, ledger, probes, verdicts, Handlers(owner, store, ledger, probes))
