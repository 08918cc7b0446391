"""The short form of `python -m tests.chaos`: each service killed once among stories, then the write path by force.

What only the long form does: two replicas, servers that are killed, wiped and cut off, processes that are frozen.
"""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from libs.bus.declare import declare
from libs.domain import effect
from services.host.roster import ORDER
from tests.chaos.effects_alone import begin
from tests.chaos.fleet import open_fleet
from tests.chaos.forked import context
from tests.chaos.ground import Ground, open_ground
from tests.chaos.judge import judge
from tests.chaos.people import People
from tests.chaos.storm import settle
from tests.support.effects import OVER_WITHIN, World, open_world
from tests.support.postgres import Database
from tests.support.record import eventually

STORIES: Final = 20
KILLS: Final = 50
SEED: Final = 1
CALL_SECONDS: Final = 0.03
LIFE_SECONDS: Final = 0.4
PLACE_SECONDS: Final = 5.0
PATH: Final = (
    "append.before",
    "append.before:2",
    "append.committed",
    "append.committed:2",
    "publish.before:2",
    "publish.acked:2",
    "effect.pending",
    "effect.called",
    "effect.called:2",
)
"""Where a life ends: at the announcement, before the call, after it, at the report."""


@pytest.fixture
async def ground(database: Database, nats_url: str, tmp_path: Path) -> AsyncIterator[Ground]:
    await declare(nats_url)
    async with open_ground(database.app_dsn, database.owner_dsn, nats_url, tmp_path) as ground:
        yield ground


def quiet(_line: str) -> None:
    """Say nothing: what went wrong is in the findings."""


@pytest.mark.force_short
async def test_each_service_is_killed_and_every_story_ends_in_one_pull_request(ground: Ground) -> None:
    drawn = random.Random(SEED)
    async with open_fleet(ground, ORDER) as fleet, People(fleet, drawn, patience=0.5) as people:
        # Before anything is approved, so that no call is under way.
        (effects,) = fleet.of("effects")
        fleet.doom(effects, "append.before")
        people.soon(people.answer_stories())
        for number in range(STORIES):
            people.soon(people.deliver(f"SHORT-{number}"))
        for name in ORDER:
            await asyncio.sleep(drawn.uniform(0, 1))
            if name != "effects":
                (slot,) = fleet.of(name)
                fleet.kill(slot)
        unsettled = await settle(ground, fleet, expected=STORIES, say=quiet, quiet_seconds=1.5)
        findings = await judge(ground, fleet, people)
    assert unsettled == []
    assert findings.violations == []
    assert findings.counts["runs completed"] == STORIES
    assert Counter(call["meta"]["minutebook/kind"] for call in ground.calls()) == {
        "write": STORIES,
        "back_link": STORIES,
    }
    assert {death.service for death in fleet.deaths} == set(ORDER)
    assert [death.how for death in fleet.deaths if death.service == "effects"] == ["to be doomed", "append.before"]


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(database, tmp_path) as world:
        yield world


@pytest.mark.force_short
async def test_the_write_path_by_force(world: World, tmp_path: Path) -> None:
    """Every life of the effects service begins two writes and is ended at a place of the path, or at any moment."""
    drawn, forking = random.Random(SEED), context()
    world.target.delay_seconds = CALL_SECONDS
    effects: list[UUID] = []

    async def life(number: int) -> int | None:
        ids = [await world.declare(await world.run(), key=str(n)) for n in range(2)]
        effects.extend(ids)
        place = PATH[number // 2 % len(PATH)] if number % 2 else ""
        arguments = (world.record.database, world.http.url, ids, place, str(tmp_path / "log"))
        process = forking.Process(target=begin, args=arguments)
        process.start()
        loop = asyncio.get_running_loop()
        ends = loop.time() + (PLACE_SECONDS if place else drawn.uniform(0, LIFE_SECONDS))
        while process.exitcode is None and loop.time() < ends:  # noqa: ASYNC110 - the other side is a process
            await asyncio.sleep(0.005)
        process.kill()
        await asyncio.to_thread(process.join)
        return process.exitcode

    ended = [await life(number) for number in range(KILLS)]
    assert ended == [-signal.SIGKILL] * KILLS
    _, bus = await world.service()
    await bus.tell("effects-history", "effect.declared", *effects)

    async def begun() -> bool:
        return all(state.status in {"succeeded", "pending"} for state in await states())

    async def states() -> list[effect.State]:
        return [await world.record.state(effect.CATEGORY, effect_id) for effect_id in effects]

    await eventually(begun, within=timedelta(seconds=30))
    await world.record.shift(OVER_WITHIN)

    async def settled() -> bool:
        """What the last life itself is calling is not doubted: it ends by its answer."""
        await bus.wake("effects", "effect", *effects)
        return all(state.status in {"succeeded", "in_doubt"} for state in await states())

    await eventually(settled, within=timedelta(seconds=30))
    calls = Counter(call["meta"]["minutebook/idempotency-key"] for call in world.target.calls())
    assert set(calls.values()) == {1}, "at most once each"
    for state in await states():
        assert state.status in {"succeeded", "in_doubt"}
        assert state.status == "in_doubt" or calls[f"{state.run_id}:{state.key}"] == 1
