"""Wiring of the decision service."""

from contracts.commands import AnswerDecision
from contracts.subjects import DURABLES
from libs.domain.decision import CATEGORY, decide
from libs.owner import Owner, Publisher
from libs.process import Service, Tools, envelope_handler, wake_handler
from libs.process.asks import answer
from services.decision.handlers import Handlers
from services.decision.revision import Revisions


def build(tools: Tools) -> Service:
    """Connect the handlers to the asks and durables of the service; nothing runs before `start`."""
    store, bus = tools.store, tools.bus
    owner = Owner(CATEGORY, decide, store=store, publisher=Publisher(bus, store), prepare=Revisions(store).check)
    handlers = Handlers(owner, store)
    durables = {durable.name: durable for durable in DURABLES}
    answer(bus, store, AnswerDecision, handlers.answer)
    bus.subscribe(durables["decision-history"], envelope_handler(handlers.on_facts))
    bus.subscribe(durables["decision-wake"], wake_handler(handlers.on_wake))
    return Service("decision", tools)
