"""Targets that do the work and cut the connection, outlast the timeout, answer with rubbish, or restart in mid-call."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal
from uuid import UUID

import pytest

from libs.domain import effect
from services.dev.http import serve
from services.dev.sandbox_mcp import Fault, sandbox
from tests.support.effects import TOKEN, World, open_world
from tests.support.postgres import Database
from tests.support.record import eventually

Kind = Literal["drop", "garbage", "hang", "error"]

FAULTS: Final[Mapping[tuple[Kind, bool], int]] = {
    ("drop", True): 15,
    ("drop", False): 15,
    ("garbage", True): 15,
    ("garbage", False): 15,
    ("hang", True): 8,
    ("hang", False): 8,
    ("error", False): 15,
}
"""How many calls what befalls, by kind and whether the target had acted."""

WELL: Final = 29
RESTARTED: Final = 16
IN_MID_CALL: Final = 8
AWAY_SECONDS: Final = 0.5
"""How long nobody is there, so that those who had to wait for their turn find nobody."""

ENDED: Final = frozenset({"succeeded", "failed", "in_doubt"})


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(database, tmp_path) as world:
        yield world


@pytest.mark.force_short
async def test_in_doubt_is_exactly_what_may_have_been_written(world: World) -> None:
    """Of each fault it is known beforehand what the record may say; the target's own record judges it."""
    faults = [Fault(kind, acted=acted) for (kind, acted), times in FAULTS.items() for _ in range(times)]
    random.Random(1).shuffle(faults)
    world.target.faults += faults
    total = len(faults) + WELL
    _, bus = await world.service()
    effects = [await world.declare(await world.run(), key=str(number)) for number in range(total)]
    await bus.tell("effects-history", "effect.declared", *effects)
    states = await _ended(world, effects)
    calls = _calls(world)
    assert set(calls.values()) == {1}
    became = Counter((state.status, calls[f"{state.run_id}:{state.key}"]) for state in states)
    doubted = Counter(fault.acted for fault in faults if fault.kind != "error")
    assert became == {
        ("succeeded", 1): WELL,
        ("failed", 0): FAULTS["error", False],
        ("in_doubt", 1): doubted[True],
        ("in_doubt", 0): doubted[False],
    }


@pytest.mark.force_short
async def test_a_target_that_restarts_in_mid_call(world: World) -> None:
    """Calls that were sent are in doubt, done or not; those that found nobody were surely not done."""
    world.target.faults += [Fault("hang", acted=number % 2 == 0) for number in range(RESTARTED)]
    _, bus = await world.service(effect_calls_per_server=IN_MID_CALL)
    effects = [await world.declare(await world.run(), key=str(number)) for number in range(RESTARTED)]
    await bus.tell("effects-history", "effect.declared", *effects)

    async def in_mid_call() -> bool:
        to_come = sum(fault.times for fault in world.target.faults)
        return RESTARTED - to_come == IN_MID_CALL and _calls(world).total() == IN_MID_CALL // 2

    await eventually(in_mid_call)
    await world.http.abort()
    port = int(world.http.url.rpartition(":")[2])
    await asyncio.sleep(AWAY_SECONDS)
    again = await serve(sandbox(world.target.file, token=TOKEN).app, port=port)
    try:
        states = await _ended(world, effects)
    finally:
        await again.stop()
    calls = _calls(world)
    became = Counter(state.status for state in states)
    assert became["in_doubt"] == IN_MID_CALL
    for state in states:
        times = calls[f"{state.run_id}:{state.key}"]
        assert times == {"succeeded": 1, "failed": 0}.get(state.status, times)
        assert times <= 1
        assert state.status != "failed" or state.failure_class == "connector_unavailable"


def _calls(world: World) -> Counter[str]:
    return Counter(call["meta"]["minutebook/idempotency-key"] for call in world.target.calls())


async def _ended(world: World, effects: list[UUID]) -> list[effect.State]:
    """Wait until each effect is known, or known not to be."""
    states: list[effect.State] = []

    async def all_ended() -> bool:
        states[:] = [await world.record.state(effect.CATEGORY, effect_id) for effect_id in effects]
        return all(state.status in ENDED for state in states)

    await eventually(all_ended, within=timedelta(seconds=120))
    return states
