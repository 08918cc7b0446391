"""The whole runner as it is wired, on real PostgreSQL and a real nats-server, and killed at its fault points."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from contracts.envelope import Address, Doorbell, Envelope, Wake
from contracts.errors import Rejected
from contracts.events.run import RunCancelled
from contracts.subjects import DURABLES
from libs.bus.declare import declare
from libs.bus.jetstream import JetStreamBus
from libs.bus.port import ACK, Delivered, Disposition, Message
from libs.config import Secrets, Settings
from libs.eventstore.postgres import PostgresStore
from libs.faultpoints import VARIABLE
from libs.ids import mint
from libs.process import Tools
from libs.process.tools import open_tools
from services.runner.app import build
from tests.support.postgres import Database
from tests.support.runner import AT, Shop, eventually

QUIET_SECONDS = 300.0
"""An idle look that never comes: what happens, a message caused."""


def settings(dsn: str, nats: str, **changes: object) -> Settings:
    values = {"runner_idle_seconds": QUIET_SECONDS, **changes}
    return Settings.model_validate({"postgres_dsn": dsn, "nats_url": nats, **values})


class Outside:
    """The other services' side of the bus: rings, and hears what the runner publishes."""

    def __init__(self, url: str) -> None:
        self.bus = JetStreamBus(url, name="outside")
        self.heard: list[tuple[str, UUID]] = []
        durables = {durable.name: durable for durable in DURABLES}
        self.bus.subscribe(durables["planner-history"], self._hear)

    async def _hear(self, batch: Sequence[Delivered]) -> Sequence[Disposition]:
        for message in batch:
            envelope = Envelope.model_validate_json(message.data)
            self.heard += [(message.subject, fact.stream_id) for fact in envelope.facts]
        return [ACK] * len(batch)

    async def publish(self, subject: str, message: Doorbell | Envelope | Wake) -> None:
        await self.bus.publish([Message(subject, message.model_dump_json().encode(), id=str(mint()))])

    async def ring(self) -> None:
        await self.publish("work.echo.default", Doorbell(count=1))

    async def hears(self, subject: str, stream_id: UUID) -> None:
        async def heard() -> None:
            assert (subject, stream_id) in self.heard

        await eventually(heard)


@pytest.fixture
async def outside(nats_url: str) -> AsyncIterator[Outside]:
    await declare(nats_url)
    made = Outside(nats_url)
    await made.bus.start()
    yield made
    await made.bus.stop()


@pytest.fixture
async def shop(pool: asyncpg.Pool, owner_pool: asyncpg.Pool) -> Shop:
    return Shop(pool, owner_pool, PostgresStore(pool))


@pytest.fixture
async def tools(database: Database, nats_url: str, outside: Outside) -> Tools:
    return await open_tools("runner", settings(database.app_dsn, nats_url), Secrets())


async def test_a_bell_brings_work_a_cancel_and_a_wake_reach_it(shop: Shop, tools: Tools, outside: Outside) -> None:
    runner = build(tools)
    await runner.start()
    try:
        _, (done,) = await shop.run()
        await outside.ring()
        await shop.wait(done, "Queued", "Started", "Succeeded")
        await outside.hears("history.attempt.succeeded", done)

        run_id, (cancelled,) = await shop.run()
        version = await shop.append_run(run_id, RunCancelled(at=AT, reason="stop"))
        facts = (Address(stream_id=run_id, version=version, correlation=run_id),)
        await outside.publish("history.run.cancelled", Envelope(era=1, facts=facts))
        await shop.wait(cancelled, "Queued", "Cancelled")

        _, (lapsed,) = await shop.run()
        await shop.store.claim(None, limit=10, lease=timedelta(seconds=90))
        await shop.advance(timedelta(seconds=91))
        await outside.publish("wake.runner", Wake(category="attempt", stream_ids=(lapsed,)))
        # The lost lease queues the attempt again, and rings by itself.
        await shop.wait(lapsed, "Queued", "LeaseLost", "Started", "Succeeded")
    finally:
        await runner.stop()


async def test_what_a_stopping_runner_finishes_is_published(shop: Shop, tools: Tools, outside: Outside) -> None:
    runner = build(tools)
    await runner.start()
    _, attempt_ids = await shop.run(20)
    await outside.ring()
    await shop.wait(attempt_ids[0], "Queued", "Started", "Succeeded")

    await runner.stop()

    for attempt_id in attempt_ids:
        if (await shop.types(attempt_id))[-1] == "Succeeded":
            await outside.hears("history.attempt.succeeded", attempt_id)
        else:
            assert await shop.types(attempt_id) == ["Queued"]


async def test_renewals_that_come_too_late_for_the_lease_are_refused_at_the_start(tools: Tools) -> None:
    slow = tools.settings.model_copy(update={"runner_renew_seconds": 50.0})

    with pytest.raises(Rejected, match="MINUTEBOOK_RUNNER_RENEW_SECONDS"):
        build(Tools(slow, tools.secrets, tools.pool, tools.store, tools.bus))
    await tools.close()


@pytest.mark.parametrize(
    "faultpoint, echo_seconds, before, after",
    [
        ("claim.taken", 0, ["Queued"], ["Queued", "LeaseLost", "Started", "Succeeded"]),
        ("attempt.executed", 0, ["Queued"], ["Queued", "LeaseLost", "Started", "Succeeded"]),
        (
            "attempt.executed",
            0.01,
            ["Queued", "Started"],
            ["Queued", "Started", "LeaseLost", "Started", "Succeeded"],
        ),
    ],
)
async def test_a_runner_killed_at_a_fault_point_loses_nothing(
    shop: Shop,
    database: Database,
    tools: Tools,
    outside: Outside,
    faultpoint: str,
    echo_seconds: float,
    before: list[str],
    after: list[str],
) -> None:
    _, (attempt_id,) = await shop.run(context={"echo_seconds": echo_seconds})
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        database.app_dsn,
        tools.settings.nats_url,
        env={**os.environ, VARIABLE: faultpoint},
        cwd=Path(__file__).parents[2],
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(30):
        assert await process.wait() == -signal.SIGKILL
    assert await shop.types(attempt_id) == before

    second = build(tools)
    await second.start()
    try:
        await shop.advance(timedelta(seconds=91))
        await outside.publish("wake.runner", Wake(category="attempt", stream_ids=(attempt_id,)))
        await shop.wait(attempt_id, *after)
        await outside.hears("history.attempt.succeeded", attempt_id)
    finally:
        await second.stop()


async def _serve(dsn: str, nats: str) -> None:
    """A runner in a process of its own, until it is killed."""
    tools = await open_tools("runner", settings(dsn, nats, runner_idle_seconds=0.05), Secrets())
    await build(tools).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2]))
