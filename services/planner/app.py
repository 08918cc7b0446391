"""Wiring of the planner."""

from contracts.commands import (
    CancelRun,
    CompleteStep,
    ForkRun,
    PromoteDefinition,
    RestartRun,
    ResumeRun,
    RetryStep,
    StartRun,
    StartRuns,
    SuspendRun,
    SyncDefinitions,
)
from contracts.subjects import DURABLES
from libs.owner import Publisher
from libs.process import Service, Tools, envelope_handler, wake_handler
from libs.process.asks import answer, answer_together
from services.planner.definitions import Definitions, load_in_a_thread
from services.planner.runs import Runs


def build(tools: Tools) -> Service:
    """Build the planner on its own connections."""
    publisher = Publisher(tools.bus, tools.store)
    runs = Runs(tools.store, publisher)
    definitions = Definitions(tools.store, publisher, load=load_in_a_thread)

    answer_together(tools.bus, tools.store, StartRun, runs.start)
    answer(tools.bus, tools.store, StartRuns, runs.start_many)
    answer(tools.bus, tools.store, CancelRun, runs.cancel)
    answer(tools.bus, tools.store, SuspendRun, runs.suspend)
    answer(tools.bus, tools.store, ResumeRun, runs.resume)
    answer(tools.bus, tools.store, RetryStep, runs.retry)
    answer(tools.bus, tools.store, CompleteStep, runs.complete)
    answer(tools.bus, tools.store, RestartRun, runs.restart)
    answer(tools.bus, tools.store, ForkRun, runs.fork)
    answer(tools.bus, tools.store, SyncDefinitions, definitions.sync)
    answer(tools.bus, tools.store, PromoteDefinition, definitions.promote)

    durables = {durable.name: durable for durable in DURABLES}
    tools.bus.subscribe(durables["planner-history"], envelope_handler(runs.on_facts))
    tools.bus.subscribe(durables["planner-wake"], wake_handler(runs.on_wake))
    return Service("planner", tools)
