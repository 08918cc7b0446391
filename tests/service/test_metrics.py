"""What the metrics say after a load whose every number is known: real services on a real record, a bus in memory."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID, uuid4

import pytest
from prometheus_client.parser import text_string_to_metric_families

from contracts import ids
from contracts.base import Principal
from contracts.commands import AnswerDecision, CancelRun, Command, StartRun
from contracts.errors import Rejected
from contracts.events.definition import DefinitionSynced
from contracts.events.effect import EffectInDoubt, EffectPending, EffectSucceeded
from contracts.replies import DecisionAccepted, RunChanged
from contracts.requests import AttemptRequest
from libs.bus.memory import MemoryBroker, MemoryBus
from libs.domain import attempt, definition, effect, run
from libs.language.model import (
    AgentStep,
    Bundle,
    DecisionStep,
    Definition,
    ManualTrigger,
    ParallelStep,
    Stage,
    Step,
    WriteStep,
)
from libs.owner import Owner, Publisher
from libs.process import Service
from libs.process.asks import ask
from libs.telemetry import metrics
from minutebook.models.states import DecisionOutcome
from services.decision.app import build as build_decision
from services.planner.app import build as build_planner
from services.runner.executors import Failure, Produced, Scope
from services.runner.worker import Worker
from services.scheduler.gauges import Gauges
from services.scheduler.lease import Lease
from services.scheduler.wakes import Wakes
from tests.support.effects import OVER_WITHIN
from tests.support.metrics import value
from tests.support.postgres import Database
from tests.support.record import Record, eventually, open_record

MODEL: Final = "model-of-the-load"
OUTPUT_COST: Final = 10
BACKOFF_AT_LEAST: Final = timedelta(seconds=10)

STEPS: Final[tuple[Step, ...]] = (
    AgentStep(key="design", prompt="p.md", agent="priced"),
    ParallelStep(
        key="build",
        parallel=(
            AgentStep(key="back", prompt="p.md", agent="priced"),
            AgentStep(key="front", prompt="p.md", agent="priced"),
        ),
    ),
    DecisionStep(key="approval", role="lead"),
    WriteStep(
        key="open_pr",
        system="github",
        tool="create_pull_request",
        args={"title": "Export"},
        effect_key="pr:{{context.fate}}",
        requires_decision="approval",
    ),
)


@dataclass
class PricedExecutor:
    """Answers at a known price, and fails where the run's fate says so."""

    name: str = "priced"

    async def execute(self, request: AttemptRequest, *, scope: Scope) -> Produced | Failure:
        match request.context["fate"], request.step, request.attempt:
            case "flaky", "design", 1:
                return Failure("connector_unavailable", "away", cost_microdollars=3, model=MODEL, turns=1)
            case "fails", "design", _:
                return Failure("default", "broken", cost_microdollars=5, model=MODEL, turns=2)
            case _:
                return Produced({"done": True}, cost_microdollars=OUTPUT_COST, model=MODEL, turns=1)

    async def close(self) -> None:
        return


@dataclass
class Shop:
    """Planner, runner and decision service on one record, and a scheduler's figures."""

    record: Record
    door: MemoryBus
    gauges: Gauges
    figures: metrics.RecordFigures
    runs: dict[str, UUID] = field(default_factory=dict)

    def principal(self, *roles: str) -> Principal:
        return Principal(
            kind="user",
            id=uuid4(),
            name="sam@example.com",
            tenant_group=self.record.group,
            tenant=self.record.tenant,
            roles=frozenset(roles),
            projects=frozenset({"core"}),
        )

    async def declare(self, definition_id: str, *steps: Step) -> None:
        bundle = Bundle(
            definition=Definition(
                id=definition_id,
                name=definition_id,
                triggers=(ManualTrigger(roles=("developer",)),),
                stages=(Stage(key="only", steps=steps),),
                on_failure={"connector_unavailable": "retry_backoff", "default": "fail"},
            ),
            prompts={"p.md": "Work."},
            hash="0" * 64,
        )
        synced = DefinitionSynced(
            at=await self.record.store.now(),
            definition_id=definition_id,
            name=definition_id,
            hash=bundle.hash,
            bundle=await self.record.keep(bundle.model_dump(mode="json")),
            enabled=True,
            event_triggers=(),
            required_context=(),
        )
        await self.record.plant(definition.CATEGORY, ids.definition(self.record.group, definition_id), synced)

    async def start(self, definition_id: str, fate: str) -> None:
        self.runs[fate] = uuid4()
        await self._ask(
            StartRun(
                **await self._envelope("developer"),
                run_id=self.runs[fate],
                definition_id=definition_id,
                context={"fate": fate},
                project_id="core",
            ),
        )

    async def cancel(self, fate: str) -> None:
        await self._ask(CancelRun(**await self._envelope("platform_admin"), run_id=self.runs[fate]))

    async def answer(self, fate: str, outcome: DecisionOutcome) -> None:
        decision_id = ids.decision(self.runs[fate], "approval", 1)
        command = AnswerDecision(**await self._envelope("lead"), decision_id=decision_id, outcome=outcome)
        await ask(self.door, command, DecisionAccepted, timeout=timedelta(seconds=10))

    async def called(self, fate: str, *, answered: bool) -> None:
        """The effects service announces the write of a run; the target answers, or never does."""
        effect_id, claim, now = ids.effect(self.runs[fate], f"pr:{fate}"), uuid4(), await self.record.store.now()
        response = await self.record.keep({"number": 1})
        verdict = (
            EffectSucceeded(at=now, claim=claim, reference="1", response=response)
            if answered
            else EffectInDoubt(at=now, claim=claim, reason="no answer")
        )
        await self.record.plant(
            effect.CATEGORY,
            effect_id,
            EffectPending(at=now, claim=claim, arm=0, over_at=now + OVER_WITHIN),
            verdict,
        )
        await self.wake(self.runs[fate])

    async def wake(self, run_id: UUID) -> None:
        """Make a run due, and be the scheduler."""
        load = await self.record.store.load("run", {run_id: 0})
        await self.record.store.move_wakes("run", [(run_id, load.streams[run_id].version, load.now)])
        await Wakes(self.record.store, self.door).send()

    async def become(self, fate: str, status: str, step: str = "", step_status: str = "") -> None:
        async def has() -> bool:
            state = await self.record.state(run.CATEGORY, self.runs[fate])
            return state.status == status and (not step or state.step(step).status == step_status)

        await eventually(has)

    async def look(self) -> Mapping[str, float]:
        """The figures that a scheduler shows now, by sample; those of runs by `runs.<state>`, without zeros."""
        await self.gauges.look()
        samples = [sample for family in self.figures.collect() for sample in family.samples]
        return {
            ".".join([sample.name.removeprefix("workflow_").removeprefix("minutebook_"), *sample.labels.values()]): (
                sample.value
            )
            for sample in samples
            if sample.value or not sample.labels
        }

    async def shows(self, expected: Mapping[str, float]) -> None:
        """Look until the figures are these, and those of runs no others: a look may have to wait for a transaction."""
        seen: dict[str, float] = {}

        async def as_expected() -> bool:
            nonlocal seen
            seen = {k: v for k, v in (await self.look()).items() if k in expected or k.startswith("runs.")}
            return seen == expected

        try:
            await eventually(as_expected)
        except TimeoutError:
            assert seen == expected

    async def _envelope(self, *roles: str) -> dict[str, object]:
        deadline = await self.record.store.now() + timedelta(minutes=1)
        return {"command_id": uuid4(), "deadline": deadline, "principal": self.principal(*roles)}

    async def _ask(self, command: Command) -> None:
        await ask(self.door, command, RunChanged, timeout=timedelta(seconds=10))


@pytest.fixture
async def shop(database: Database) -> AsyncIterator[Shop]:
    async with AsyncExitStack() as exit_, open_record(database) as record:
        broker = MemoryBroker()
        async with exit_:
            for build in (build_planner, build_decision):
                service = build(await record.tools(MemoryBus(broker)))
                await service.start()
                exit_.push_async_callback(service.stop)
            tools = await record.tools(MemoryBus(broker), runner_idle_seconds=0.05, drain_seconds=1)
            worker = Worker(
                runner="one",
                store=tools.store,
                bus=tools.bus,
                owner=Owner(
                    attempt.CATEGORY, attempt.decide, store=tools.store, publisher=Publisher(tools.bus, tools.store)
                ),
                executors={"priced": PricedExecutor()},
                settings=tools.settings,
            )
            runner = Service("runner", tools, duties=[worker.claiming], drains=[worker.drain])
            await runner.start()
            exit_.push_async_callback(runner.stop)
            door = MemoryBus(broker, name="api")
            await door.start()
            figures = metrics.RecordFigures()
            lease = Lease(record.store, uuid4(), length=timedelta(seconds=10))
            yield Shop(record, door, Gauges(record.pool, lease, shown=figures), figures)


async def test_after_a_load_every_figure_is_exactly_right(shop: Shop) -> None:
    kinds = ("agent", "parallel", "decision", "write")
    ended_before = {kind: value("workflow_step_duration_seconds_count", kind=kind) for kind in kinds}
    agents_took_before = value("workflow_step_duration_seconds_sum", kind="agent")
    cost_before = value("workflow_step_cost_microdollars_total")
    claims_before = value("minutebook_claim_wait_seconds_count")
    late_before = value("minutebook_wake_late_seconds_count", category="run")
    started_before = value("minutebook_ask_seconds_count", command="planner.start_run", result="ok")

    async def ended() -> dict[str, float]:
        return {kind: value("workflow_step_duration_seconds_count", kind=kind) - ended_before[kind] for kind in kinds}

    await shop.declare("trial", *STEPS)
    await shop.declare("stuck", AgentStep(key="design", prompt="p.md", agent="nobody"))
    await shop.shows({"steps_queued": 0, "decisions_waiting": 0, "effects_in_doubt": 0, "outbox_rows": 2})

    waiting = ("done", "doubt", "rejected", "waits", "cancelled")
    for fate in (*waiting, "flaky", "fails"):
        await shop.start("trial", fate)
    await shop.start("stuck", "stuck")
    for fate in waiting:
        await shop.become(fate, "waiting_decision")
    await shop.become("flaky", "running", "design", "retrying")
    await shop.become("fails", "failed")
    await shop.shows({"runs.waiting_decision": 5, "runs.running": 2, "runs.failed": 1, "decisions_waiting": 5})

    await shop.record.shift(BACKOFF_AT_LEAST)
    await Wakes(shop.record.store, shop.door).send()
    await shop.become("flaky", "waiting_decision")
    await shop.answer("done", "approve")
    await shop.answer("doubt", "approve")
    await shop.answer("rejected", "reject")
    await shop.cancel("cancelled")
    for fate, answered in {"done": True, "doubt": False}.items():
        await shop.become(fate, "running", "open_pr", "writing")
        await shop.called(fate, answered=answered)
    await shop.become("done", "completed")
    await shop.become("doubt", "suspended")
    await shop.become("rejected", "completed")

    # The cancelled run's decision is withdrawn; what the test wrote itself, twice two statements, nobody publishes.
    await shop.shows(
        {
            "runs.completed": 2,
            "runs.suspended": 1,
            "runs.waiting_decision": 2,
            "runs.cancelled": 1,
            "runs.failed": 1,
            "runs.running": 1,
            "steps_queued": 1,
            "decisions_waiting": 2,
            "effects_in_doubt": 1,
            "outbox_rows": 4,
        }
    )
    assert (await shop.look())["outbox_age_seconds"] >= BACKOFF_AT_LEAST.total_seconds()

    assert await ended() == {"agent": 19, "parallel": 6, "decision": 3, "write": 1}
    assert value("workflow_step_cost_microdollars_total") - cost_before == 18 * OUTPUT_COST + 3 + 5
    # The flaky step waited for its second attempt, and that is a part of how long it took.
    took = value("workflow_step_duration_seconds_sum", kind="agent") - agents_took_before
    assert took >= BACKOFF_AT_LEAST.total_seconds()

    calls = {r: value("minutebook_model_calls_total", model=MODEL, result=r) for r in ("succeeded", "default")}
    assert calls == {"succeeded": 18, "default": 2}
    assert value("minutebook_model_calls_total", model=MODEL, result="connector_unavailable") == 1
    assert value("minutebook_claim_wait_seconds_count") - claims_before == 20
    assert value("minutebook_wake_late_seconds_count", category="run") - late_before >= 3
    assert value("minutebook_ask_seconds_count", command="planner.start_run", result="ok") - started_before == 8
    assert value("minutebook_bus_batch_messages_count", durable="planner-history") > 0
    assert value("minutebook_append_streams_sum", category="run") >= 8


async def test_figures_that_were_counted_on_are_those_that_counting_anew_finds(shop: Shop) -> None:
    await shop.declare("trial", *STEPS)
    await shop.look()
    for number in range(12):
        await shop.start("trial", f"run {number}")
        if number % 3 == 0:
            await shop.look()
    for number in range(12):
        await shop.become(f"run {number}", "waiting_decision")
        if number % 3 == 0:
            await shop.answer(f"run {number}", "reject")
        if number % 3 == 1:
            await shop.cancel(f"run {number}")
        await shop.look()
    expected = {"runs.completed": 4, "runs.cancelled": 4, "runs.waiting_decision": 4, "decisions_waiting": 4}
    await shop.shows(expected)

    lease = Lease(shop.record.store, uuid4(), length=timedelta(seconds=10))
    await shop.record.shift(timedelta(seconds=11))
    shop.gauges = Gauges(shop.record.pool, lease, shown=shop.figures)
    await shop.shows(expected)


async def test_an_ask_that_is_refused_is_measured_as_refused(shop: Shop) -> None:
    before = value("minutebook_ask_seconds_count", command="planner.start_run", result="rejected")
    with pytest.raises(Rejected):
        await shop.start("nothing-of-this-name", "lost")
    assert value("minutebook_ask_seconds_count", command="planner.start_run", result="rejected") == before + 1


async def test_the_page_of_a_working_process_parses(shop: Shop) -> None:
    await shop.declare("trial", *STEPS)
    await shop.start("trial", "waits")
    await shop.become("waits", "waiting_decision")
    page, content_type = metrics.render()
    assert content_type.startswith("text/plain")
    families = {family.name: family for family in text_string_to_metric_families(page.decode())}
    assert families["workflow_step_duration_seconds"].type == "histogram"
    kinds = {sample.labels["kind"] for sample in families["workflow_step_duration_seconds"].samples}
    assert {"agent", "parallel"} <= kinds
