"""The effects service killed at each place of the write path: at most one call, and what is left says what is known."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from contracts import ids
from libs.domain import effect
from libs.faultpoints import VARIABLE
from services.dev.sandbox_mcp import Fault
from tests.support.effects import OVER_WITHIN, World, open_world
from tests.support.postgres import Database
from tests.support.settling import LINK_TOOL, declare_server, until

_SERVICE: Final = """
import asyncio, sys
from uuid import UUID

from tests.support.effects import secrets
from tests.support.postgres import Database
from tests.support.record import ListeningBus, open_record
from services.effects.app import build


async def main(app_dsn, owner_dsn, effect_id, url):
    bus = ListeningBus()
    async with open_record(Database("", owner_dsn, app_dsn)) as record:
        service = build(await record.tools(bus, secrets=secrets(url)))
        await service.start()
        await bus.tell("effects-history", "effect.declared", UUID(effect_id))
        await bus.wake("effects", "effect", UUID(effect_id))
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(database, tmp_path) as world:
        yield world


async def killed_at(place: str, world: World, effect_id: UUID) -> int:
    """Run the service in a process of its own that dies at a fault point; returns how it ended."""
    dsns: Database = world.record.database
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _SERVICE,
        dsns.app_dsn,
        dsns.owner_dsn,
        str(effect_id),
        world.http.url,
        cwd=Path(__file__).parents[2],
        env={**os.environ, VARIABLE: place},
        stdout=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(30):
            return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()


@pytest.mark.parametrize(("place", "calls"), [("effect.pending", 0), ("effect.called", 1)])
async def test_a_kill_on_the_write_path_leaves_at_most_one_call(world: World, place: str, calls: int) -> None:
    effect_id = await world.declare(await world.run())
    assert await killed_at(place, world, effect_id) == -signal.SIGKILL
    assert (await world.record.state(effect.CATEGORY, effect_id)).status == "pending"

    _, bus = await world.service()
    await bus.tell("effects-history", "effect.declared", effect_id)
    await bus.wake("effects", "effect", effect_id)
    assert (await world.record.state(effect.CATEGORY, effect_id)).status == "pending"
    await world.record.shift(OVER_WITHIN)
    await bus.wake("effects", "effect", effect_id)
    assert (await world.record.state(effect.CATEGORY, effect_id)).status == "in_doubt"
    assert len(world.target.calls()) == calls


async def test_a_kill_right_after_the_success_loses_no_back_link_and_makes_one(world: World) -> None:
    """It is born in the statement that records the success: the second one of this process, after the announcement."""
    await declare_server(world, linked=True)
    effect_id = await world.declare(await world.run())
    assert await killed_at("append.committed:2", world, effect_id) == -signal.SIGKILL
    assert (await world.record.state(effect.CATEGORY, effect_id)).status == "succeeded"
    link_id = ids.back_link(effect_id)
    assert (await world.record.state(effect.CATEGORY, link_id)).status == "declared"

    _, bus = await world.service()
    await world.record.shift(effect.DECLARED_WATCHDOG)
    assert [due.stream_id for due in await world.record.store.due("effect", limit=10)] == [link_id]
    await bus.wake("effects", "effect", link_id)
    await world.until(link_id, "succeeded")
    assert [call["tool"] for call in world.target.calls()] == ["create_pull_request", LINK_TOOL]


async def test_a_kill_in_mid_look_costs_another_look_and_no_second_write(world: World) -> None:
    await declare_server(world)
    _, bus = await world.service()
    effect_id = await world.declare(await world.run())
    world.target.faults.append(Fault("drop", acted=True))
    await bus.tell("effects-history", "effect.declared", effect_id)
    await world.until(effect_id, "in_doubt")
    await world.record.shift(OVER_WITHIN)
    assert await killed_at("effect.probed", world, effect_id) == -signal.SIGKILL
    assert (await world.record.state(effect.CATEGORY, effect_id)).status == "in_doubt"
    await until(world, bus, effect_id, "succeeded")
    assert len(world.target.calls()) == 1
