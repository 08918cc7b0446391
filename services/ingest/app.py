"""Wiring of the ingest service."""

from contracts.commands import DeliverEvent, NoteDifferentBody, ReplayEvent
from contracts.subjects import DURABLES
from libs.domain import inbound, run, wait
from libs.owner import Owner, Publisher
from libs.process import Service, Tools, envelope_handler, wake_handler
from libs.process.asks import answer
from services.ingest.asks import Asks
from services.ingest.events import Events
from services.ingest.handlers import Handlers
from services.ingest.queries import Queries
from services.ingest.waits import Waits


def build(tools: Tools) -> Service:
    """Connect the handlers to the asks and durables of the service; nothing runs before `start`."""
    store, bus = tools.store, tools.bus
    publisher = Publisher(bus, store)
    born = {run.CATEGORY.name: run.CATEGORY}
    owner = Owner(inbound.CATEGORY, inbound.decide, store=store, publisher=publisher, categories=born)
    owner_of_waits = Owner(wait.CATEGORY, wait.decide, store=store, publisher=publisher)
    waits = Waits(owner_of_waits, store)
    events = Events(owner, store, Queries(store), waits)
    handlers = Handlers(events, waits)
    asks = Asks(owner, owner_of_waits, store, events)
    durables = {durable.name: durable for durable in DURABLES}
    answer(bus, store, ReplayEvent, asks.replay)
    answer(bus, store, DeliverEvent, asks.deliver)
    answer(bus, store, NoteDifferentBody, asks.note_different_body)
    bus.subscribe(durables["ingest-inbound"], handlers.on_notices)
    bus.subscribe(durables["ingest-history"], envelope_handler(handlers.on_facts))
    bus.subscribe(durables["ingest-wake"], wake_handler(handlers.on_wake))
    return Service("ingest", tools)
