"""Every process of an installation replaced one by one under live runs: nothing is lost, repeated or in doubt."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from libs.bus.declare import declare
from tests.chaos.fleet import open_fleet
from tests.chaos.ground import Ground, open_ground
from tests.chaos.judge import judge
from tests.chaos.people import People
from tests.chaos.storm import settle
from tests.chaos.write_path import WRITING, approve
from tests.support.postgres import Database

RUNS: Final = 200
AT_ONCE: Final = 8
TWICE: Final = (*WRITING, "planner", "decision", "scheduler")
"""Two of each, but for the door: callers wait for that one while it is replaced."""


@pytest.fixture
async def ground(database: Database, nats_url: str, tmp_path: Path) -> AsyncIterator[Ground]:
    await declare(nats_url)
    async with open_ground(database.app_dsn, database.owner_dsn, nats_url, tmp_path) as ground:
        yield ground


async def test_every_process_is_replaced_under_live_runs(ground: Ground) -> None:
    async with open_fleet(ground, TWICE) as fleet, People(fleet, random.Random(1)) as people:
        places = asyncio.Semaphore(AT_ONCE)

        async def write(number: int) -> None:
            async with places:
                await approve(people, f"ROLL-{number}")

        writing = asyncio.gather(*(write(number) for number in range(RUNS)))
        for slot in fleet.slots:
            if slot.service != "api":
                await fleet.replace(slot)
        behind = list(people.again)
        for slot in fleet.of("api"):
            await fleet.replace(slot)
        await writing
        unsettled = await settle(ground, fleet, expected=RUNS, say=lambda _line: None)
        findings = await judge(ground, fleet, people)
    assert unsettled == []
    assert findings.violations == []
    assert findings.counts["runs completed"] == RUNS
    assert Counter(call["meta"]["minutebook/kind"] for call in ground.calls()) == {"write": RUNS, "back_link": RUNS}
    assert fleet.deaths == []
    assert behind == [], "nobody had to ask twice while one of two was replaced"
