"""The runner on real PostgreSQL: claims, executes, records, and drains."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import asyncpg
import pytest

from contracts.base import BlobRef, JsonObject
from contracts.events.attempt import (
    AttemptFailed,
    AttemptStarted,
    AttemptSucceeded,
)
from contracts.events.run import (
    RunCancelled,
)
from contracts.requests import AttemptRequest
from libs.bus.port import ACK, Delivered
from libs.canonical import canonical
from libs.telemetry.tracing import recorded
from services.runner.executors import OUTPUT_BYTES_MAX, EchoExecutor, Failure, Produced, Scope
from tests.support.runner import AT, GROUP, TRACE, GatedExecutor, Shop, eventually, open_shop


@pytest.fixture
async def shop(pool: asyncpg.Pool, owner_pool: asyncpg.Pool) -> AsyncIterator[Shop]:
    async with open_shop(pool, owner_pool) as shop:
        yield shop


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
