"""A process that was frozen between the announcement and the call makes no call: somebody may have settled it since."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, get_args
from uuid import UUID

import asyncpg
import pytest

from libs.domain import effect
from minutebook.models.states import SettleVerdict
from tests.support.effects import OVER_WITHIN, World, open_world
from tests.support.postgres import Database
from tests.support.record import eventually
from tests.support.settling import ask, verdict

LIMIT_SECONDS: Final = 1.0
WAITING: Final = """
select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()
"""
SERVICE: Final = """
import asyncio, sys
from uuid import UUID

from tests.support.effects import secrets
from tests.support.postgres import Database
from tests.support.record import ListeningBus, open_record
from services.effects.app import build


async def main(app_dsn, owner_dsn, effect_id, url, limit):
    bus = ListeningBus()
    async with open_record(Database("", owner_dsn, app_dsn)) as record:
        service = build(await record.tools(bus, secrets=secrets(url), effect_start_seconds=float(limit)))
        await service.start()
        await bus.tell("effects-history", "effect.declared", UUID(effect_id))
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(database, tmp_path) as world:
        yield world


@contextmanager
def service(world: World, effect_id: UUID) -> Iterator[subprocess.Popen[bytes]]:
    """The effects service as a process that begins this effect."""
    dsns = world.record.database
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            SERVICE,
            dsns.app_dsn,
            dsns.owner_dsn,
            str(effect_id),
            world.http.url,
            str(LIMIT_SECONDS),
        ],
        cwd=Path(__file__).parents[2],
        env=dict(os.environ),
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def frozen(world: World, run_id: UUID, effect_id: UUID) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A process that announced the effect and was frozen before it heard that the announcement stands."""
    connection = await asyncpg.connect(world.record.database.owner_dsn)
    try:
        # The announcement waits for its run's row, so the process can be frozen before it hears that it stands.
        await connection.execute(f"begin; select 1 from run_heads where stream_id = '{run_id}' for update")
        with service(world, effect_id) as process:

            async def announcing() -> bool:
                return bool(await world.record.pool.fetchval(WAITING))

            await eventually(announcing)
            process.send_signal(signal.SIGSTOP)
            await connection.execute("commit")
            await world.until(effect_id, "pending")
            try:
                yield process
            finally:
                process.send_signal(signal.SIGCONT)
    finally:
        await connection.close()


async def passed(seconds: float) -> None:
    """Let time go by that nothing else would show."""
    since = asyncio.get_running_loop().time()

    async def over() -> bool:
        return asyncio.get_running_loop().time() > since + seconds

    await eventually(over)


async def test_a_process_that_was_frozen_before_its_call_does_not_make_it(world: World) -> None:
    run_id = await world.run()
    effect_id = await world.declare(run_id)
    async with frozen(world, run_id, effect_id) as process:
        await passed(LIMIT_SECONDS)
        process.send_signal(signal.SIGCONT)
        state = await world.until(effect_id, "failed")
    assert (state.failure_class, state.message) == ("connector_unavailable", "not started in time")
    assert world.target.calls() == []


@pytest.mark.parametrize("said", get_args(SettleVerdict))
async def test_a_process_that_was_frozen_past_a_verdict_writes_nothing_afterwards(
    world: World, said: SettleVerdict
) -> None:
    """Neither a call nor a fact: what the operator said stays what happened."""
    run_id = await world.run()
    effect_id = await world.declare(run_id)
    async with frozen(world, run_id, effect_id) as process:
        _, bus = await world.service()
        await world.record.shift(OVER_WITHIN)
        await bus.wake("effects", "effect", effect_id)
        reply = await ask(bus, await verdict(world, effect_id, said))
        assert reply.problem is None
        state = await world.until(effect_id, {"landed": "succeeded", "not_landed": "failed"}.get(said, "succeeded"))
        calls, facts = len(world.target.calls()), await world.record.types("effect", effect_id)
        assert calls == (said == "try_again")
        await passed(LIMIT_SECONDS)
        process.send_signal(signal.SIGCONT)
        await passed(LIMIT_SECONDS)
    assert len(world.target.calls()) == calls
    assert await world.record.types("effect", effect_id) == facts
    assert await world.record.state(effect.CATEGORY, effect_id) == state
