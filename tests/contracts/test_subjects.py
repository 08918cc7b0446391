"""Who hears what: every subject has its listener, and no service hears the same fact twice."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

import asyncpg
import pytest

from contracts.commands import COMMANDS
from contracts.envelope import Owner
from contracts.events import CATEGORIES
from contracts.registry import registered
from contracts.subjects import DURABLES, OWNER_OF, STREAMS, DurableSpec, history, wake
from libs.bus.port import AskHandler, BatchHandler, Listener
from libs.config import Secrets, Settings
from libs.domain.categories import CATEGORIES as FOLDED
from libs.domain.core import never
from libs.eventstore.postgres import PostgresStore
from libs.language.steps import EXECUTORS
from libs.process import Tools
from services.host.roster import BUILDERS
from services.runner.executors import AnthropicExecutor, EchoExecutor
from tests.support.buses import QuietBus

FACTS = {history(name) for name, _ in registered()}

MUST_HEAR: Mapping[Owner, frozenset[str]] = {
    # What a run waits for came about. What the run itself ended (withdrawn, cancelled) tells it nothing new.
    "planner": frozenset(
        {
            "run.created",
            "attempt.succeeded",
            "attempt.failed",
            "decision.answered",
            "effect.succeeded",
            "effect.failed",
            "effect.in_doubt",
        }
    ),
    # Work on a run that is over must stop, and nobody may be asked about it any more.
    "runner": frozenset({"run.cancelled", "run.failed"}),
    # A run that completes leaves nothing open but what these tell, and decisions whose own clock withdraws them.
    "decision": frozenset({"run.cancelled", "run.failed", "run.step_failed", "run.step_skipped"}),
    "ingest": frozenset({"run.cancelled", "run.failed", "run.step_failed"}),
    # What was declared is written, also after a suspension or another arm; what was cancelled is not.
    "effects": frozenset({"effect.declared", "run.step_writing", "run.resumed", "run.cancelled"}),
}


@dataclass
class RecordingBus(QuietBus):
    """A bus that remembers who wants what."""

    durables: list[DurableSpec] = field(default_factory=list)
    asks: list[str] = field(default_factory=list)
    overheard: list[str] = field(default_factory=list)

    def subscribe(self, durable: DurableSpec, handler: BatchHandler, *, batch_max: int = 200) -> None:
        self.durables.append(durable)

    def answer(self, subject: str, handler: AskHandler) -> None:
        self.asks.append(subject)

    def listen(self, subject: str, listener: Listener) -> None:
        self.overheard.append(subject)


@pytest.fixture
async def wired() -> dict[Owner, RecordingBus]:
    """Every service as its own wiring builds it, on a pool that was never opened."""
    settings = Settings(postgres_dsn="postgresql:///unused", nats_url="nats://unused")
    buses: dict[Owner, RecordingBus] = {}
    for name, build in BUILDERS.items():
        pool = asyncpg.create_pool(settings.postgres_dsn)
        buses[name] = RecordingBus()
        build(Tools(settings=settings, secrets=Secrets(), pool=pool, store=PostgresStore(pool), bus=buses[name]))
    return buses


def test_every_durable_listens_to_what_there_is() -> None:
    streams = {stream.name: stream for stream in STREAMS}
    known = {
        "HISTORY": FACTS,
        "WORK": {"work.>"},
        "WAKE": {wake(owner) for owner in get_args(Owner)},
        "INBOUND": {"inbound.>"},
    }
    for durable in DURABLES:
        assert set(durable.subjects) <= known[durable.stream], durable.name
        assert len(set(durable.subjects)) == len(durable.subjects), durable.name
        (prefix,) = (subject.removesuffix(">") for subject in streams[durable.stream].subjects)
        assert all(subject.startswith(prefix) for subject in durable.subjects), durable.name
    assert len({durable.name for durable in DURABLES}) == len(DURABLES)
    assert set(known) == set(streams)


async def test_every_durable_is_consumed_by_its_service_and_nobody_else(wired: dict[Owner, RecordingBus]) -> None:
    for name, bus in wired.items():
        declared = [durable for durable in DURABLES if durable.service == name]
        assert sorted(bus.durables, key=lambda d: d.name) == sorted(declared, key=lambda d: d.name), name
    assert set(wired) == set(get_args(Owner))


async def test_what_is_overheard_are_facts_that_there_are(wired: dict[Owner, RecordingBus]) -> None:
    assert {subject for bus in wired.values() for subject in bus.overheard} <= FACTS


def test_a_service_hears_a_subject_by_one_durable() -> None:
    heard: defaultdict[tuple[Owner, str], list[str]] = defaultdict(list)
    for durable in DURABLES:
        for subject in durable.subjects:
            heard[durable.service, subject].append(durable.name)
    assert {key: names for key, names in heard.items() if len(names) > 1} == {}


@pytest.mark.parametrize("service", MUST_HEAR)
def test_a_service_hears_what_it_must_react_to(service: Owner) -> None:
    assert {history(name) for name in MUST_HEAR[service]} <= FACTS, "the table names facts that there are"
    heard = {subject for durable in DURABLES if durable.service == service for subject in durable.subjects}
    assert {history(name) for name in MUST_HEAR[service]} <= heard


def test_what_the_clock_wakes_is_heard_by_its_owner() -> None:
    assert set(OWNER_OF) == set(CATEGORIES) == set(FOLDED)
    woken = {OWNER_OF[name] for name, category in FOLDED.items() if category.wake_at is not never}
    # Those of deliveries and of heads that were rebuilt as due now come on top.
    assert woken | {"ingest", "decision"} == {durable.service for durable in DURABLES if durable.stream == "WAKE"}


async def test_every_ask_is_answered_by_the_service_that_it_names(wired: dict[Owner, RecordingBus]) -> None:
    answered = sorted((subject, name) for name, bus in wired.items() for subject in bus.asks)
    assert answered == sorted((subject, subject.split(".")[1]) for subject in COMMANDS)


def test_every_executor_that_a_definition_may_name_is_one_that_the_runner_has() -> None:
    assert {AnthropicExecutor.name, EchoExecutor.name} == EXECUTORS
