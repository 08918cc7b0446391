"""Wiring of the ingest service."""

from contracts.subjects import DURABLES
from libs.domain import run
from libs.domain.inbound import CATEGORY, decide
from libs.owner import Owner, Publisher
from libs.process import Service, Tools, wake_handler
from services.ingest.handlers import Handlers
from services.ingest.queries import Queries


def build(tools: Tools) -> Service:
    """Connect the handlers to the durables of the service; nothing runs before `start`."""
    store, bus = tools.store, tools.bus
    owner = Owner(
        CATEGORY, decide, store=store, publisher=Publisher(bus, store), categories={run.CATEGORY.name: run.CATEGORY}
    )
    handlers = Handlers(owner, store, Queries(store))
    durables = {durable.name: durable for durable in DURABLES}
    bus.subscribe(durables["ingest-inbound"], handlers.on_notices)
    bus.subscribe(durables["ingest-wake"], wake_handler(handlers.on_wake))
    return Service("ingest", tools)
