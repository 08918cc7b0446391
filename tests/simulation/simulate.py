"""Plays one seed: builds the world, lets it work under faults, ends them, and waits until everything is settled."""

import asyncio
import hashlib
import random as global_random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import structlog

from libs.domain.categories import CATEGORIES
from libs.eventstore.mapper import chain, spill
from libs.eventstore.memory import MemoryStore
from libs.eventstore.port import Recorded
from libs.ids import seeded
from libs.process import Service, Tools
from services.decision.app import build as build_decision
from services.effects.app import build as build_effects
from services.ingest.app import build as build_ingest
from services.planner.app import build as build_planner
from services.runner.app import build as build_runner
from services.scheduler.app import build as build_scheduler
from tests.simulation import catalogue, nemesis
from tests.simulation.auditor import PARKED_AFTER_SECONDS
from tests.simulation.faults import draw
from tests.simulation.founding import fresh_store
from tests.simulation.loop import VirtualLoop
from tests.simulation.outside import ScriptedExecutor, Target
from tests.simulation.people import People
from tests.simulation.process import OUTAGE, Crash, Process
from tests.simulation.restorer import Restorer
from tests.simulation.settlers import Settlers
from tests.simulation.violation import Violation
from tests.simulation.world import Replica, World

SETTLED_WITHIN_SECONDS: Final = 1_500.0
CALLS_OVER_SECONDS: Final = 130.0
"""By now every call is over that was announced before the calm, however the clock jumped meanwhile."""


@dataclass(frozen=True, slots=True)
class Played:
    """What one seed did. `violation` is None when every promise held; `trace` is what happened, in order."""

    seed: int
    steps: int
    facts: int
    runs: Counter[str]
    faults: Counter[str]
    seconds: float
    violation: str | None
    trace: Sequence[tuple[float, str, str]]

    @property
    def fingerprint(self) -> str:
        """Equal for two plays that did the same."""
        return hashlib.sha256(repr(self.trace).encode()).hexdigest()[:16]


def play(seed: int) -> Played:
    """Play a seed from beginning to end. The same seed plays the same in every process with the same hash seed."""
    store = fresh_store()  # before anything is drawn: the first one of a process takes longer
    random = Random(seed)
    global_random.seed(seed)
    loop = VirtualLoop()
    violation: str | None = None
    with seeded(random), asyncio.Runner(loop_factory=lambda: loop) as runner:
        world = World(loop, random, store)
        loop.set_exception_handler(lambda _loop, context: _on_loose_end(world, context))
        _listen_to_logs(world)
        try:
            runner.run(_play(world, seed))
        except Exception as error:
            violation = f"{type(error).__name__}: {error}"
    states = Counter(head.state for head in store.rows["run"].values())
    return Played(seed, world.steps, len(store.history), states, world.counts, loop.seconds, violation, world.trace)


async def _play(world: World, seed: int) -> None:
    world.replicas = _replicas(world)
    for replica in world.replicas:
        replica.begin()
    people = People(world)
    world.auditor.look()
    try:
        await world.until(_work(world, people, Restorer(people, seed)))
        await world.until(_settle(world, people))
    finally:
        await world.end()
    world.auditor.close(_fold)
    _judge_chains(world.store)


async def _work(world: World, people: People, restorer: Restorer) -> None:
    """The time of the faults: runs start, people act, things break."""
    random = world.random
    world.faults = draw(random)
    world.shows_records = world.faults.settled
    world.apart(people.deciding(), "people who decide")
    world.apart(people.operating(), "people who operate")
    world.apart(Settlers(people).settling(), "people who settle")
    world.apart(people.replying(), "sources that reply")
    worst = world.apart(nemesis.haunt(world), "nemesis")
    restoring = world.apart(restorer.restoring(), "administrators")
    ids = (*catalogue.SMALL, *catalogue.SMALL, "core-dev", "hello")
    for number in range(random.randint(2, 12)):
        definition_id = random.choice(ids)
        if definition_id in catalogue.SMALL and random.random() < 0.5:
            world.apart(people.start_by_event(definition_id, f"E-{number}"), "a source")
        else:
            world.apart(people.start_run(definition_id, f"K-{number}"), "a person who starts")
        await asyncio.sleep(random.expovariate(1 / 5.0))
    await asyncio.sleep(random.choice((10.0, 60.0, 200.0)))
    worst.cancel()
    restoring.cancel()
    await restorer.over()
    nemesis.heal(world)


async def _settle(world: World, people: People) -> None:
    """The calm: within a bounded time everything that was begun ends, or waits for a person.

    In some seeds nobody answers for a while, so that what is parked can be seen to wait for nothing but people.
    """
    began, quiet = world.loop.seconds, 0
    patient = world.random.random() < 0.3
    people.away = patient
    people.calm = True
    while quiet < 3:
        await asyncio.sleep(8.0)
        calm_seconds = world.loop.seconds - began
        world.shows_records = world.shows_records or calm_seconds > CALLS_OVER_SECONDS
        people.away = patient and calm_seconds < 1.5 * PARKED_AFTER_SECONDS
        world.sync()
        world.auditor.judge_calm(calm_seconds)
        left = world.auditor.unsettled() + _undone(world.store)
        quiet = 0 if left else quiet + 1
        if calm_seconds > SETTLED_WITHIN_SECONDS:
            raise Violation(f"stuck {SETTLED_WITHIN_SECONDS:g} s after the last fault: " + "; ".join(left[:8]))


def _undone(store: MemoryStore) -> list[str]:
    rows = len(store._unpublished)
    deliveries = len(store._deliveries)
    return [f"{rows} outbox rows"] * bool(rows) + [f"{deliveries} deliveries not recorded"] * bool(deliveries)


# What runs


def _replicas(world: World) -> list[Replica]:
    two = world.random.random() < 0.5
    built = {
        "planner": lambda tools, process: build_planner(tools),
        "decision": lambda tools, process: build_decision(tools),
        "ingest": lambda tools, process: build_ingest(tools),
        "scheduler": lambda tools, process: build_scheduler(tools),
        "effects": lambda tools, process: build_effects(tools, Target(process).call),
        "runner": _runner,
    }
    doubled = ("planner", "scheduler", "effects", "runner") if two else ("runner",)
    return [
        Replica(world, "api", lambda tools, process: None),
        *(Replica(world, name, build) for name, build in built.items()),
        *(Replica(world, name, built[name]) for name in doubled),
    ]


def _runner(tools: Tools, process: Process) -> Service:
    return build_runner(tools, [ScriptedExecutor(process, "anthropic"), ScriptedExecutor(process, "echo")])


# Judgement of the record as a whole


def _fold(category: str, facts: tuple[Recorded, ...]) -> tuple[str, Mapping[str, Any]]:
    aggregate = CATEGORIES[category]
    state = aggregate.fold(tuple(recorded.event for recorded in facts))
    return aggregate.status(state), aggregate.columns(state)


def _judge_chains(store: MemoryStore) -> None:
    """Each fact's digest covers its bytes and the digest before it."""
    mapper = store.mapper
    last: dict[Any, bytes] = {}
    for recorded in store.history:
        type_, event_version, state = mapper.write(recorded.event, recorded.stream_id)
        payload, _ = spill(state)
        digest = chain(
            last.get(recorded.stream_id, b""),
            stream_id=recorded.stream_id,
            version=recorded.version,
            category=recorded.category,
            type_=type_,
            event_version=event_version,
            payload=payload,
            metadata=mapper.write_metadata(recorded.metadata),
        )
        if digest != recorded.digest:
            raise Violation(f"the chain of {recorded.category} {recorded.stream_id} is broken at v{recorded.version}")
        last[recorded.stream_id] = digest


# What nobody awaits


def _on_loose_end(world: World, context: Mapping[str, Any]) -> None:
    error = context.get("exception")
    if world.closed or isinstance(error, Crash | asyncio.CancelledError):
        return
    world.fail(f"a task ended with what nobody awaits: {context.get('message')}: {error!r}")


def _listen_to_logs(world: World) -> None:
    """What the product itself calls a bug is one."""

    def judge(_logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        said = str(event.get("event"))
        a_bug = (
            said != "executor failed"
            and event.get("error") != Crash.__name__
            and not isinstance(event.get("exc_info"), Crash)
            and method in {"error", "critical", "exception"}
        )
        a_duty = said.startswith("duty failed") and OUTAGE not in str(event.get("error"))
        if not world.closed and (a_bug or a_duty):
            world.fail(f"the product says: {said} {event}")
        raise structlog.DropEvent

    structlog.configure(
        processors=[judge],
        wrapper_class=structlog.make_filtering_bound_logger(30),
        cache_logger_on_first_use=False,
    )
