"""Wiring of the decision service."""

from contracts.commands import AnswerDecision, ReassignDecision
from contracts.subjects import DURABLES
from libs.domain.decision import CATEGORY, decide
from libs.owner import Owner, Publisher
from libs.process import Service, Tools, envelope_handler, wake_handler
from libs.process.asks import answer
from services.decision.checks import Checks
from services.decision.handlers import Handlers
from services.decision.people import People


def build(tools: Tools) -> Service:
    """Connect the handlers to the asks and durables of the service; nothing runs before `start`."""
    store, bus = tools.store, tools.bus
    people = People(store)
    checks = Checks(store, people)
    owner = Owner(CATEGORY, decide, store=store, publisher=Publisher(bus, store), prepare=checks.check)
    handlers = Handlers(owner, store, people)
    durables = {durable.name: durable for durable in DURABLES}
    answer(bus, store, AnswerDecision, handlers.answer)
    answer(bus, store, ReassignDecision, handlers.reassign)
    bus.subscribe(durables["decision-history"], envelope_handler(handlers.on_facts))
    bus.subscribe(durables["decision-wake"], wake_handler(handlers.on_wake))
    return Service("decision", tools)
