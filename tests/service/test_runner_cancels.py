"""What ends under a runner: runs, branches, and attempts that nobody wants any more."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from contracts.base import Event
from contracts.envelope import Address
from contracts.events.attempt import (
    AttemptCancelled,
)
from contracts.events.run import (
    RunCancelled,
    RunFailed,
    RunResumed,
    RunStepCancelled,
    RunStepQueued,
)
from tests.support.runner import AT, GatedExecutor, Shop, eventually, open_shop


@pytest.fixture
async def shop(pool: asyncpg.Pool, owner_pool: asyncpg.Pool) -> AsyncIterator[Shop]:
    async with open_shop(pool, owner_pool) as shop:
        yield shop


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
