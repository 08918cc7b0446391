"""Wiring of the effects service."""

from datetime import timedelta

from contracts.subjects import DURABLES
from libs.domain.effect import CATEGORY, decide
from libs.owner import Owner, Publisher
from libs.process import Service, Tools, envelope_handler, wake_handler
from services.effects.connectors import Connectors
from services.effects.handlers import Handlers
from services.effects.ledger import Ledger
from services.effects.queries import Queries


def build(tools: Tools) -> Service:
    """Connect the handlers to the durables of the service; nothing runs before `start`."""
    store, bus, settings = tools.store, tools.bus, tools.settings
    owner = Owner(CATEGORY, decide, store=store, publisher=Publisher(bus, store))
    queries = Queries(tools.pool)
    ledger = Ledger(
        owner=owner,
        store=store,
        connectors=Connectors(store, tools.secrets),
        queries=queries,
        start_within=timedelta(seconds=settings.effect_start_seconds),
    )
    handlers = Handlers(owner, store, queries, ledger)
    durables = {durable.name: durable for durable in DURABLES}
    bus.subscribe(durables["effects-history"], envelope_handler(handlers.on_facts))
    bus.subscribe(durables["effects-wake"], wake_handler(handlers.on_wake))

    async def drain() -> None:
        await ledger.drain(timedelta(seconds=settings.drain_seconds))

    return Service("effects", tools, on_stop=[drain])
