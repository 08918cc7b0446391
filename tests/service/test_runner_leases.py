"""Leases of a runner: renewed, lost, taken over; a late report writes nothing."""

from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from contracts.events.attempt import (
    AttemptFailed,
    AttemptLeaseLost,
    AttemptStarted,
    AttemptSucceeded,
)
from libs.canonical import blob
from libs.postgres import execute
from services.runner.executors import Produced
from tests.support.runner import GROUP, GatedExecutor, Shop, eventually, open_shop


@pytest.fixture
async def shop(pool: asyncpg.Pool, owner_pool: asyncpg.Pool) -> AsyncIterator[Shop]:
    async with open_shop(pool, owner_pool) as shop:
        yield shop


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
