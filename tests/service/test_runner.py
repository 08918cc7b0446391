"""The runner on real PostgreSQL: claims, leases, takeover, cancel and drain. The bus is deaf here: runners look."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from contracts.base import Actor, BlobRef, Event, JsonObject, Metadata
from contracts.envelope import Address
from contracts.events.attempt import (
    AttemptCancelled,
    AttemptFailed,
    AttemptLeaseLost,
    AttemptQueued,
    AttemptStarted,
    AttemptSucceeded,
)
from contracts.events.run import (
    RunCancelled,
    RunCreated,
    RunFailed,
    RunResumed,
    RunStarted,
    RunStepCancelled,
    RunStepQueued,
    Trigger,
    UserRef,
)
from contracts.requests import AttemptRequest
from contracts.subjects import DurableSpec
from libs.bus.port import ACK, AskHandler, BatchHandler, Delivered, Listener, Message
from libs.canonical import blob, canonical
from libs.config import Settings
from libs.domain import attempt, run
from libs.eventstore.port import Append, BirthRow
from libs.eventstore.postgres import PostgresStore
from libs.ids import mint
from libs.owner import Owner, Publisher
from libs.postgres import execute
from libs.telemetry.tracing import recorded
from services.runner.duties import Keeper, RunsEnded, Wakes
from services.runner.executors import OUTPUT_BYTES_MAX, EchoExecutor, Executor, Failure, Produced, Scope
from services.runner.worker import Worker

AT = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
GROUP, TENANT = mint(), mint()
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class DeafBus:
    """A bus that keeps what is published and delivers nothing."""

    def __init__(self) -> None:
        self.published: list[Message] = []

    def subscribe(self, durable: DurableSpec, handler: BatchHandler, *, batch_max: int = 200) -> None:
        return

    def answer(self, subject: str, handler: AskHandler) -> None:
        return

    def listen(self, subject: str, listener: Listener) -> None:
        return

    async def start(self) -> None:
        return

    async def publish(self, messages: Sequence[Message]) -> None:
        self.published += messages

    async def ask(self, subject: str, data: bytes, *, headers: Mapping[str, str], timeout: timedelta) -> bytes:
        raise NotImplementedError

    async def usable(self) -> bool:
        return True

    async def incarnations(self) -> Mapping[str, str]:
        return {}

    async def redeclare(self) -> tuple[str, ...]:
        return ()

    async def overruns(self) -> frozenset[str]:
        return frozenset()

    async def quiesce(self) -> None:
        return

    async def stop(self) -> None:
        return


@dataclass
class GatedExecutor:
    """Counts executions of each attempt, and ends each only once `gate` is open."""

    outcome: Produced | Failure = field(default_factory=lambda: Produced({"done": True}))
    name: str = "echo"
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    executions: Counter[UUID] = field(default_factory=Counter)
    cancelled: list[UUID] = field(default_factory=list)

    async def execute(self, request: AttemptRequest, *, scope: Scope) -> Produced | Failure:
        self.executions[scope.attempt_id] += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(scope.attempt_id)
            raise
        return self.outcome

    async def close(self) -> None:
        return


class Runner:
    """A runner as its wiring builds it, that can also die: no drain, nothing given back."""

    def __init__(self, name: str, pool: asyncpg.Pool, executor: Executor, settings: Settings) -> None:
        self.store = PostgresStore(pool)
        self.bus = DeafBus()
        owner: Owner[attempt.State, attempt.Command] = Owner(
            attempt.CATEGORY, attempt.decide, store=self.store, publisher=Publisher(self.bus, self.store)
        )
        self.worker = Worker(
            runner=name,
            store=self.store,
            bus=self.bus,
            owner=owner,
            executors={executor.name: executor},
            settings=settings,
        )
        self.ended = RunsEnded(owner, self.store, self.worker.hand)
        self.wakes = Wakes(owner, self.store, self.ended, settings)
        self.keeper = Keeper(self.worker.hand, self.store, self.ended, settings)
        self._duties: list[asyncio.Task[None]] = []

    def start(self, *, keeping: bool = True) -> "Runner":
        duties = [self.worker.claiming, *([self.keeper.keeping] if keeping else [])]
        self._duties = [asyncio.create_task(duty()) for duty in duties]
        return self

    async def freeze(self) -> None:
        """Claim and renew no more; what runs goes on."""
        for duty in self._duties:
            duty.cancel()
        await asyncio.gather(*self._duties, return_exceptions=True)

    async def die(self) -> None:
        await self.freeze()
        await self.worker.hand.let_go(why="killed by the test")

    async def stop(self) -> None:
        await self.worker.drain()
        await self.freeze()
        await self.store.close()


@dataclass
class Shop:
    """A database with runners, runs and a clock that the test shifts."""

    pool: asyncpg.Pool
    owner_pool: asyncpg.Pool
    store: PostgresStore
    runners: list[Runner] = field(default_factory=list)

    def runner(self, executor: Executor | None = None, **settings: Any) -> Runner:
        values = {"runner_idle_seconds": 0.02, "runner_renew_seconds": 0.05, "drain_seconds": 5.0, **settings}
        made = Runner(
            f"runner-{len(self.runners)}",
            self.pool,
            executor or EchoExecutor(),
            Settings(postgres_dsn="unused", nats_url="unused", **values),
        )
        self.runners.append(made)
        return made

    async def advance(self, by: timedelta) -> None:
        await execute(self.owner_pool, "update clock_shift set shift = shift + $1::interval", by)

    async def run(
        self, attempts: int = 1, *, request: BlobRef | None = None, queue: str = "default", **fields: Any
    ) -> tuple[UUID, list[UUID]]:
        """A running run with attempts that are ready."""
        run_id, attempt_ids = mint(), [mint() for _ in range(attempts)]
        events: list[Event] = [
            RunCreated(
                at=AT,
                definition_id="trial",
                hash="1" * 64,
                bundle=BlobRef(digest="2" * 64, bytes=2),
                context={},
                initiated_by=UserRef(id=mint(), email="dev@example.com"),
                trigger=Trigger(kind="manual"),
            ),
            RunStarted(at=AT),
        ]
        births, blobs = [], {}
        for number, attempt_id in enumerate(attempt_ids, 1):
            ref, content = _request(run_id, number, fields)
            blobs[ref.digest] = content
            queued = AttemptQueued(
                at=AT,
                run_id=run_id,
                step="draft",
                round=1,
                number=number,
                executor="echo",
                queue=queue,
                request=request or ref,
            )
            state = attempt.evolve(attempt.CATEGORY.initial, queued)
            columns = attempt.CATEGORY.columns(state)
            births.append(BirthRow("attempt", attempt_id, queued, "queued", columns, None, f"work.echo.{queue}"))
            events.append(RunStepQueued(at=AT, step="draft", round=1, attempt=number, attempt_id=attempt_id))
        await self.append_run(run_id, *events, births=tuple(births), blobs=blobs)
        return run_id, attempt_ids

    async def append_run(
        self,
        run_id: UUID,
        *events: Event,
        births: tuple[BirthRow, ...] = (),
        blobs: Mapping[str, bytes] | None = None,
    ) -> int:
        """Append to a run as its owner would; its new version."""
        before = (await self.store.load("run", {run_id: 0})).streams[run_id]
        state = run.CATEGORY.fold(tuple(r.event for r in before.events) + events)
        append = Append(
            stream_id=run_id,
            version=before.version,
            digest=before.digest,
            events=events,
            metadata=Metadata(
                tenant_group=GROUP,
                tenant=TENANT,
                actor=Actor(kind="system", name="tests"),
                correlation=run_id,
                causation=run_id,
                traceparent=TRACE,
            ),
            state=run.CATEGORY.status(state),
            columns=run.CATEGORY.columns(state),
            wake_at=None,
            births=births,
            blobs=blobs or {},
        )
        (fate,) = (await self.store.append("run", [append])).appended
        assert fate.fate == "won"
        return fate.version

    async def events(self, attempt_id: UUID) -> list[Event]:
        loaded = (await self.store.load("attempt", {attempt_id: 0})).streams[attempt_id]
        return [fact.event for fact in loaded.events]

    async def types(self, attempt_id: UUID) -> list[str]:
        return [type(event).__name__.removeprefix("Attempt") for event in await self.events(attempt_id)]

    async def wait(self, attempt_id: UUID, *types: str) -> list[Event]:
        """The attempt's events, once they are these."""

        async def as_expected() -> None:
            assert await self.types(attempt_id) == list(types)

        await eventually(as_expected)
        return await self.events(attempt_id)


def _request(run_id: UUID, number: int, fields: Mapping[str, Any]) -> tuple[BlobRef, bytes]:
    asked = AttemptRequest(
        run_id=run_id,
        definition_id="trial",
        step="draft",
        round=1,
        attempt=number,
        prompt="Do it.",
        context={"number": number},
        output_schema=None,
        model=None,
        budget_microdollars=None,
        deadline_seconds=60.0,
    )
    return blob(asked.model_copy(update=dict(fields)).model_dump(mode="json"))


async def eventually(check: Callable[[], Awaitable[None]], within: float = 10.0) -> None:
    """Retry an assertion until it holds."""
    deadline = asyncio.get_running_loop().time() + within
    while True:
        try:
            return await check()
        except AssertionError:
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.01)


@pytest.fixture
async def shop(pool: asyncpg.Pool, owner_pool: asyncpg.Pool) -> AsyncIterator[Shop]:
    made = Shop(pool, owner_pool, PostgresStore(pool))
    yield made
    for runner in made.runners:
        await runner.die()


async def test_an_attempt_is_claimed_started_executed_and_recorded(shop: Shop) -> None:
    run_id, (attempt_id,) = await shop.run()

    shop.runner().start()

    _, started, succeeded = await shop.wait(attempt_id, "Queued", "Started", "Succeeded")
    assert isinstance(started, AttemptStarted)
    assert isinstance(succeeded, AttemptSucceeded)
    assert succeeded.claim == started.claim
    assert started.runner == "runner-0"
    kept = await shop.store.blobs(GROUP, [succeeded.output.digest])
    assert kept[succeeded.output.digest] == canonical({"context": {"number": 1}})
    head = (await shop.store.heads("attempt", [attempt_id]))[attempt_id]
    assert (head.state, head.claim, head.lease_until) == ("succeeded", None, None)
    (fact,) = (await shop.store.load("attempt", {attempt_id: 2})).streams[attempt_id].events
    assert fact.metadata.correlation == run_id
    assert fact.metadata.traceparent is not None
    assert fact.metadata.traceparent.split("-")[1] == TRACE.split("-")[1]


async def test_an_attempt_is_a_span_of_its_runs_trace(shop: Shop) -> None:
    _, (attempt_id,) = await shop.run()

    with recorded() as spans:
        shop.runner().start()
        await shop.wait(attempt_id, "Queued", "Started", "Succeeded")
        await shop.runners[0].stop()

    (span,) = [span for span in spans.get_finished_spans() if span.name == "attempt"]
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == TRACE.split("-")[1]
    assert span.attributes is not None
    assert span.attributes["attempt_id"] == str(attempt_id)


async def test_a_failure_is_recorded_with_class_message_and_cost(shop: Shop) -> None:
    _, (attempt_id,) = await shop.run()
    executor = GatedExecutor(Failure("output_invalid", "title: is\x00 missing\ud800", cost_microdollars=12, turns=2))
    executor.gate.set()

    shop.runner(executor).start()

    *_, failed = await shop.wait(attempt_id, "Queued", "Started", "Failed")
    assert isinstance(failed, AttemptFailed)
    assert (failed.failure_class, failed.cost_microdollars, failed.turns) == ("output_invalid", 12, 2)
    assert failed.message == "title: is\N{REPLACEMENT CHARACTER} missing\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    "output, why",
    [
        ({"text": "x" * OUTPUT_BYTES_MAX}, "at most 1048576 are kept"),
        ({"text": "half of \ud83d"}, "cannot be kept as JSON"),
        ({"number": float("nan")}, "cannot be kept as JSON"),
    ],
)
async def test_an_output_that_cannot_be_kept_is_output_invalid(shop: Shop, output: JsonObject, why: str) -> None:
    _, (attempt_id,) = await shop.run()
    executor = GatedExecutor(Produced(output, cost_microdollars=5))
    executor.gate.set()

    shop.runner(executor).start()

    *_, failed = await shop.wait(attempt_id, "Queued", "Started", "Failed")
    assert isinstance(failed, AttemptFailed)
    assert failed.failure_class == "output_invalid"
    assert why in failed.message
    assert failed.cost_microdollars == 5


@pytest.mark.parametrize("at_once", [False, True])
async def test_an_executor_that_breaks_fails_its_attempt_only(shop: Shop, at_once: bool) -> None:
    class Breaking(EchoExecutor):
        async def execute(self, request: AttemptRequest, *, scope: Scope) -> Produced | Failure:
            return self.answer(request)

        def at_once(self, request: AttemptRequest) -> Produced | Failure | None:
            return self.answer(request) if at_once else None

        def answer(self, request: AttemptRequest) -> Produced | Failure:
            if request.attempt == 1:
                raise ZeroDivisionError("with a secret in it")
            return Produced({})

    _, (first, second) = await shop.run(2)

    shop.runner(Breaking()).start()

    *_, failed = await shop.wait(first, "Queued", "Started", "Failed")
    await shop.wait(second, "Queued", "Started", "Succeeded")
    assert isinstance(failed, AttemptFailed)
    assert failed.failure_class == "default"
    assert "ZeroDivisionError" in failed.message
    assert "secret" not in failed.message


async def test_a_request_that_nothing_holds_fails_the_attempt(shop: Shop) -> None:
    _, (attempt_id,) = await shop.run(request=BlobRef(digest="f" * 64, bytes=2))

    shop.runner().start()

    *_, failed = await shop.wait(attempt_id, "Queued", "Started", "Failed")
    assert isinstance(failed, AttemptFailed)
    assert "not stored any more" in failed.message


async def test_a_runner_takes_no_more_than_it_has_slots_and_goes_on_when_one_is_free(shop: Shop) -> None:
    _, attempt_ids = await shop.run(5)
    executor = GatedExecutor()
    runner = shop.runner(executor, runner_slots=2, runner_idle_seconds=0.02).start()

    async def two_run() -> None:
        assert executor.executions.total() == 2

    await eventually(two_run)
    assert runner.worker.hand.free == 0
    assert await shop.store.waiting() == {"work.echo.default": 3}

    executor.gate.set()
    for attempt_id in attempt_ids:
        await shop.wait(attempt_id, "Queued", "Started", "Succeeded")
    assert set(executor.executions.values()) == {1}


async def test_work_of_ended_runs_does_not_hide_what_stands_behind_it(shop: Shop) -> None:
    for _ in range(5):
        run_id, _ = await shop.run()
        await shop.append_run(run_id, RunCancelled(at=AT, reason="stop"))
    _, (attempt_id,) = await shop.run()
    runner = shop.runner(runner_slots=1, runner_idle_seconds=300.0).start()

    bell = Delivered("work.echo.default", b'{"count":1}', {}, 1)
    assert await runner.worker.on_bell([bell]) == [ACK]

    await shop.wait(attempt_id, "Queued", "Started", "Succeeded")


async def test_work_whose_bell_was_lost_is_claimed_with_what_was_heard_of(shop: Shop) -> None:
    """Found by the simulation, seed 171: the runner saw it, claimed what it had heard of, and saw it again for ever."""
    _, (attempt_id,) = await shop.run(queue="quiet")
    runner = shop.runner(runner_idle_seconds=300.0).start()

    bell = Delivered("work.echo.default", b'{"count":1}', {}, 1)
    assert await runner.worker.on_bell([bell]) == [ACK]

    await shop.wait(attempt_id, "Queued", "Started", "Succeeded")


async def test_a_full_runner_rings_for_the_others(shop: Shop) -> None:
    await shop.run(3)
    runner = shop.runner(GatedExecutor(), runner_slots=2).start()

    async def rang() -> None:
        assert "work.echo.default" in [message.subject for message in runner.bus.published]

    await eventually(rang)


async def test_two_runners_share_the_work_and_execute_nothing_twice(shop: Shop) -> None:
    _, attempt_ids = await shop.run(60)
    executors = [GatedExecutor(), GatedExecutor()]
    for executor in executors:
        shop.runner(executor, runner_slots=4).start()

    async def both_are_full() -> None:
        assert [executor.executions.total() for executor in executors] == [4, 4]

    await eventually(both_are_full)
    for executor in executors:
        executor.gate.set()

    for attempt_id in attempt_ids:
        await shop.wait(attempt_id, "Queued", "Started", "Succeeded")
    executions = executors[0].executions + executors[1].executions
    assert executions == Counter(dict.fromkeys(attempt_ids, 1))


async def test_a_claim_that_is_renewed_outlives_its_lease(shop: Shop) -> None:
    _, (attempt_id,) = await shop.run()
    executor = GatedExecutor()
    runner = shop.runner(executor).start()
    await shop.wait(attempt_id, "Queued", "Started")
    before = (await shop.store.heads("attempt", [attempt_id]))[attempt_id]

    await shop.advance(timedelta(seconds=60))

    async def renewed() -> None:
        lease = (await shop.store.heads("attempt", [attempt_id]))[attempt_id]
        assert lease.lease_until is not None
        assert before.lease_until is not None
        assert lease.lease_until - before.lease_until >= timedelta(seconds=60)

    await eventually(renewed)
    assert await runner.wakes.on_wake("attempt", [attempt_id]) == {}
    executor.gate.set()
    await shop.wait(attempt_id, "Queued", "Started", "Succeeded")


async def test_another_runner_takes_over_from_one_that_died(shop: Shop) -> None:
    _, (attempt_id,) = await shop.run()
    dead = shop.runner(GatedExecutor()).start()
    await shop.wait(attempt_id, "Queued", "Started")
    await dead.die()
    second = shop.runner().start()

    await shop.advance(timedelta(seconds=89))
    assert await second.wakes.on_wake("attempt", [attempt_id]) == {}
    assert await shop.types(attempt_id) == ["Queued", "Started"]
    await shop.advance(timedelta(seconds=2))
    assert await second.wakes.on_wake("attempt", [attempt_id]) == {}

    _, first, lost, again, succeeded = await shop.wait(
        attempt_id, "Queued", "Started", "LeaseLost", "Started", "Succeeded"
    )
    assert isinstance(first, AttemptStarted)
    assert isinstance(again, AttemptStarted)
    assert isinstance(succeeded, AttemptSucceeded)
    assert lost == AttemptLeaseLost(at=lost.at, claim=first.claim, count=1)
    assert again.runner == "runner-1"
    assert succeeded.claim == again.claim != first.claim


async def test_a_runner_that_died_between_claim_and_start_loses_its_lease_too(shop: Shop) -> None:
    _, (attempt_id,) = await shop.run()
    (claimed,) = await shop.store.claim(None, limit=1, lease=timedelta(seconds=90))
    await shop.advance(timedelta(seconds=91))
    runner = shop.runner()

    assert await runner.wakes.on_wake("attempt", [attempt_id]) == {}

    runner.start()
    _, lost, *_ = await shop.wait(attempt_id, "Queued", "LeaseLost", "Started", "Succeeded")
    assert lost == AttemptLeaseLost(at=lost.at, claim=claimed.claim, count=1)


async def test_a_late_report_of_an_old_claim_writes_nothing(shop: Shop) -> None:
    _, (attempt_id,) = await shop.run()
    executor = GatedExecutor(Produced({"late": True}))
    late = shop.runner(executor).start(keeping=False)
    await shop.wait(attempt_id, "Queued", "Started")
    await late.freeze()
    await shop.advance(timedelta(seconds=91))
    second = shop.runner().start()
    await second.wakes.on_wake("attempt", [attempt_id])
    await shop.wait(attempt_id, "Queued", "Started", "LeaseLost", "Started", "Succeeded")

    executor.gate.set()
    await late.worker.hand.finish(timedelta(seconds=5))

    assert late.worker.hand.claims() == []
    *_, last = await shop.wait(attempt_id, "Queued", "Started", "LeaseLost", "Started", "Succeeded")
    assert isinstance(last, AttemptSucceeded)
    late_output, _ = blob({"late": True})
    assert last.output != late_output
    assert await shop.store.blobs(GROUP, [late_output.digest]) == {}


async def test_a_late_report_during_anothers_execution_writes_nothing(shop: Shop) -> None:
    _, (attempt_id,) = await shop.run()
    first, second = GatedExecutor(Produced({"late": True})), GatedExecutor(Produced({"late": False}))
    late = shop.runner(first).start(keeping=False)
    await shop.wait(attempt_id, "Queued", "Started")
    await late.freeze()
    await shop.advance(timedelta(seconds=91))
    taking_over = shop.runner(second).start()
    await taking_over.wakes.on_wake("attempt", [attempt_id])
    await shop.wait(attempt_id, "Queued", "Started", "LeaseLost", "Started")

    first.gate.set()
    await late.worker.hand.finish(timedelta(seconds=5))
    assert await shop.types(attempt_id) == ["Queued", "Started", "LeaseLost", "Started"]
    second.gate.set()

    *_, last = await shop.wait(attempt_id, "Queued", "Started", "LeaseLost", "Started", "Succeeded")
    assert isinstance(last, AttemptSucceeded)
    assert last.output == blob({"late": False})[0]


async def test_a_runner_that_lost_its_claim_stops_the_work(shop: Shop) -> None:
    _, (attempt_id,) = await shop.run()
    executor = GatedExecutor()
    runner = shop.runner(executor).start()
    await shop.wait(attempt_id, "Queued", "Started")

    await execute(shop.owner_pool, "update attempt_heads set claim = gen_random_uuid()")

    async def stopped() -> None:
        assert executor.cancelled == [attempt_id]
        assert runner.worker.hand.claims() == []

    await eventually(stopped)
    assert await shop.types(attempt_id) == ["Queued", "Started"]


async def test_the_third_lost_lease_fails_the_attempt(shop: Shop) -> None:
    _, (attempt_id,) = await shop.run()
    for _ in range(3):
        runner = shop.runner(GatedExecutor()).start()

        async def started() -> None:
            assert (await shop.types(attempt_id))[-1] == "Started"

        await eventually(started)
        await runner.die()
        await shop.advance(timedelta(seconds=91))
        await runner.wakes.on_wake("attempt", [attempt_id])

    *_, failed = await shop.wait(attempt_id, "Queued", *["Started", "LeaseLost"] * 3, "Failed")
    assert isinstance(failed, AttemptFailed)
    assert failed.failure_class == "connector_unavailable"
    assert await shop.store.waiting() == {}
    head = (await shop.store.heads("attempt", [attempt_id]))[attempt_id]
    assert (head.state, head.claim) == ("failed", None)


@pytest.mark.parametrize(
    "end, type_",
    [
        (RunCancelled(at=AT, reason="no longer needed"), "run.cancelled"),
        (RunFailed(at=AT, failure_class="default", reason="a branch failed"), "run.failed"),
    ],
)
async def test_the_end_of_a_run_reaches_its_running_and_queued_attempts(shop: Shop, end: Event, type_: str) -> None:
    run_id, (running, queued) = await shop.run(2)
    executor = GatedExecutor()
    runner = shop.runner(executor, runner_slots=1).start()
    await shop.wait(running, "Queued", "Started")
    version = await shop.append_run(run_id, end)

    failures = await runner.ended.on_facts(type_, [Address(stream_id=run_id, version=version, correlation=run_id)])

    assert failures == {}
    *_, cancelled = await shop.wait(running, "Queued", "Started", "Cancelled")
    assert isinstance(cancelled, AttemptCancelled)
    assert cancelled.reason == type_.replace(".", " ")
    await shop.wait(queued, "Queued", "Cancelled")

    async def stopped() -> None:
        assert executor.cancelled == [running]
        assert runner.worker.hand.claims() == []

    await eventually(stopped)


async def test_a_branch_that_lost_is_stopped_and_the_others_go_on(shop: Shop) -> None:
    run_id, (loser, other) = await shop.run(2)
    executor = GatedExecutor()
    runner = shop.runner(executor, runner_slots=2).start()
    await shop.wait(loser, "Queued", "Started")
    await shop.wait(other, "Queued", "Started")
    lost = RunStepCancelled(at=AT, step="build.left", attempt_id=loser, reason="build.right has succeeded")
    version = await shop.append_run(run_id, lost)

    told = [Address(stream_id=run_id, version=version, correlation=run_id)]
    assert await runner.ended.on_facts("run.step_cancelled", told) == {}

    *_, cancelled = await shop.wait(loser, "Queued", "Started", "Cancelled")
    assert isinstance(cancelled, AttemptCancelled)
    assert cancelled.reason == "build.right has succeeded"

    async def stopped() -> None:
        assert executor.cancelled == [loser]
        assert [attempt_id for attempt_id, _ in runner.worker.hand.claims()] == [other]

    await eventually(stopped)


async def test_a_cancel_that_another_replica_heard_stops_the_work_too(shop: Shop) -> None:
    run_id, (attempt_id,) = await shop.run()
    executor = GatedExecutor()
    shop.runner(executor).start()
    await shop.wait(attempt_id, "Queued", "Started")
    version = await shop.append_run(run_id, RunCancelled(at=AT, reason="stop"))
    other = shop.runner()

    await other.ended.on_facts("run.cancelled", [Address(stream_id=run_id, version=version, correlation=run_id)])

    async def stopped() -> None:
        assert executor.cancelled == [attempt_id]

    await eventually(stopped)
    assert await shop.types(attempt_id) == ["Queued", "Started", "Cancelled"]


async def test_a_cancel_whose_message_was_lost_stops_the_work_all_the_same(shop: Shop) -> None:
    run_id, (running, queued) = await shop.run(2)
    executor = GatedExecutor()
    runner = shop.runner(executor, runner_slots=1, runner_renew_seconds=0.2).start()
    await shop.wait(running, "Queued", "Started")
    await shop.append_run(run_id, RunCancelled(at=AT, reason="stop"))

    async def stopped() -> None:
        assert executor.cancelled == [running]

    await eventually(stopped)
    assert await shop.types(running) == ["Queued", "Started", "Cancelled"]
    assert await shop.types(queued) == ["Queued"]
    assert await runner.wakes.on_wake("attempt", [queued]) == {}
    assert await shop.types(queued) == ["Queued", "Cancelled"]


async def test_a_late_message_of_a_runs_end_spares_what_was_queued_after_a_retry(shop: Shop) -> None:
    run_id, (before,) = await shop.run()
    runner = shop.runner()
    version = await shop.append_run(run_id, RunFailed(at=AT, failure_class="default", reason="no"))
    _, (after,) = await shop.run()
    queued = RunStepQueued(at=AT, step="draft", round=1, attempt=2, attempt_id=after)
    await shop.append_run(run_id, RunResumed(at=AT), queued)

    await runner.ended.on_facts("run.failed", [Address(stream_id=run_id, version=version, correlation=run_id)])

    assert await shop.types(before) == ["Queued", "Cancelled"]
    assert await shop.types(after) == ["Queued"]


async def test_a_stopping_runner_finishes_what_it_can(shop: Shop) -> None:
    _, (attempt_id,) = await shop.run()
    executor = GatedExecutor()
    runner = shop.runner(executor).start()
    await shop.wait(attempt_id, "Queued", "Started")

    stopping = asyncio.create_task(runner.stop())
    executor.gate.set()
    await stopping

    assert await shop.types(attempt_id) == ["Queued", "Started", "Succeeded"]


async def test_a_stopping_runner_gives_back_the_rest_at_once(shop: Shop) -> None:
    _, (attempt_id,) = await shop.run()
    executor = GatedExecutor()
    runner = shop.runner(executor, drain_seconds=0.05).start()
    await shop.wait(attempt_id, "Queued", "Started")

    await runner.stop()

    assert executor.cancelled == [attempt_id]
    assert await shop.types(attempt_id) == ["Queued", "Started", "LeaseLost"]
    assert await shop.store.waiting() == {"work.echo.default": 1}
    shop.runner().start()
    await shop.wait(attempt_id, "Queued", "Started", "LeaseLost", "Started", "Succeeded")


async def test_a_running_attempt_whose_rebuilt_head_knows_no_claim_is_ready_again(shop: Shop) -> None:
    _, (attempt_id,) = await shop.run()
    runner = shop.runner(GatedExecutor()).start()
    await shop.wait(attempt_id, "Queued", "Started")
    await runner.die()
    await execute(shop.owner_pool, "update attempt_heads set claim = null, lease_until = null, wake_at = now()")

    second = shop.runner().start()
    assert await second.wakes.on_wake("attempt", [attempt_id]) == {}

    await shop.wait(attempt_id, "Queued", "Started", "LeaseLost", "Started", "Succeeded")


async def test_a_wake_for_nothing_is_moved_so_that_it_does_not_come_again(shop: Shop) -> None:
    _, (attempt_id,) = await shop.run()
    await execute(shop.owner_pool, "update attempt_heads set wake_at = now() - interval '1 minute'")
    assert [due.stream_id for due in await shop.store.due("attempt", limit=10)] == [attempt_id]

    await shop.runner().wakes.on_wake("attempt", [attempt_id])

    assert await shop.store.due("attempt", limit=10) == []
    assert await shop.types(attempt_id) == ["Queued"]
