"""Cancels race announcements: whoever was told that a run is cancelled sees nothing announced for it afterwards."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from contracts.events.run import RunCancelled
from libs.domain import effect, run
from libs.ids import nonce
from libs.owner import Item, Owner, Publisher
from libs.process import actor
from tests.support.effects import OVER_WITHIN, World, open_world
from tests.support.postgres import Database
from tests.support.record import ListeningBus

RACES: Final = 100
SPREAD_SECONDS: Final = 0.004
SEED: Final = 7


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(database, tmp_path) as world:
        yield world


async def announced(world: World, effect_id: UUID) -> bool:
    return "effect.pending" in await world.record.types("effect", effect_id)


async def test_nothing_is_announced_after_a_cancel_was_answered(world: World) -> None:
    store, spread = world.record.store, random.Random(SEED)
    owner = Owner(effect.CATEGORY, effect.decide, store=store, publisher=Publisher(ListeningBus(), store))

    async def announce(effect_id: UUID) -> None:
        await asyncio.sleep(spread.uniform(0, SPREAD_SECONDS))
        begin = effect.Begin(over_within=OVER_WITHIN, claim=nonce())
        await owner.handle([Item(stream_id=effect_id, command=begin, actor=actor("effects"), causation=effect_id)])

    async def cancel(run_id: UUID, effect_id: UUID) -> bool:
        """Cancel, and once that is answered see whether the write was announced by then."""
        await asyncio.sleep(spread.uniform(0, SPREAD_SECONDS))
        await world.record.plant(run.CATEGORY, run_id, RunCancelled(at=await store.now(), reason="no"))
        return await announced(world, effect_id)

    before, late = 0, 0
    for _ in range(RACES):
        run_id = await world.run()
        effect_id = await world.declare(run_id)
        _, by_then = await asyncio.gather(announce(effect_id), cancel(run_id, effect_id))
        before += by_then
        late += not by_then and await announced(world, effect_id)
    assert 0 < before < RACES, "both sides win some of these races"
    assert late == 0
