"""What a server's declaration allows, held to by calls that are announced only when they may be made."""

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from uuid import UUID

import pytest

from libs.domain import effect
from services.dev.sandbox_mcp import Fault
from tests.support.effects import World, open_world
from tests.support.postgres import Database
from tests.support.record import ListeningBus, eventually
from tests.support.settling import declare_server


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(database, tmp_path) as world:
        yield world


async def declared(world: World, bus: ListeningBus, count: int, *, system: str = "github") -> list[UUID]:
    run_id = await world.run()
    effects = [await world.declare(run_id, key=f"{system} {number}", system=system) for number in range(count)]
    await bus.tell("effects-history", "effect.declared", *effects)
    return effects


async def states(world: World, effects: list[UUID]) -> list[str]:
    return [(await world.record.state(effect.CATEGORY, each)).status for each in effects]


async def all_succeeded(world: World, effects: list[UUID]) -> None:
    async def reached() -> bool:
        return set(await states(world, effects)) == {"succeeded"}

    await eventually(reached)


async def test_a_rate_spaces_calls_and_what_waits_is_not_announced(world: World) -> None:
    await declare_server(world, rate_calls=2, rate_seconds=1.0)
    _, bus = await world.service()
    effects = await declared(world, bus, 5)
    assert (await states(world, effects)).count("declared") >= 3
    await all_succeeded(world, effects)
    moments = [datetime.fromisoformat(call["at"]) for call in world.target.calls()]
    # The target notes when it acted, a moment after the call was let go.
    gaps = [(later - before).total_seconds() for before, later in zip(moments, moments[2:], strict=False)]
    assert min(gaps) > 0.5


async def test_no_more_calls_at_a_time_than_a_server_allows(world: World) -> None:
    await declare_server(world, concurrency=1)
    _, bus = await world.service()
    world.target.delay_seconds = 0.2
    effects = await declared(world, bus, 3)
    assert sorted(await states(world, effects)) == ["declared", "declared", "pending"]
    await all_succeeded(world, effects)


async def test_a_server_that_cannot_be_reached_is_left_alone_and_then_tried_by_one_call(world: World) -> None:
    await declare_server(world, concurrency=1, breaker_failures=2, breaker_cooldown_seconds=1.5)
    await world.another_server("elsewhere")
    _, bus = await world.service()
    world.target.faults.append(Fault("away"))
    effects = await declared(world, bus, 4)

    async def opened() -> bool:
        return (await states(world, effects)).count("failed") == 2

    await eventually(opened)
    assert sorted(await states(world, effects)) == ["declared", "declared", "failed", "failed"]
    world.target.faults.clear()
    other = await declared(world, bus, 1, system="elsewhere")
    await all_succeeded(world, other)
    assert (await states(world, effects)).count("declared") == 2, "the other server's calls pass it by"

    async def closed() -> bool:
        return sorted(await states(world, effects)) == ["failed", "failed", "succeeded", "succeeded"]

    await eventually(closed)
