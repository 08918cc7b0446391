"""A nats-server that is killed again and again, and now and then loses what it stored, while runs are under way."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from structlog.testing import capture_logs

from minutebook.client import ApiError
from tests.support.fleet import PATIENCE_SECONDS, Fleet, OwnNats, open_fleet, own_nats
from tests.support.postgres import Database

KILLS: Final = 100
WIPED_EVERY: Final = 20
RUNS: Final = 60
DOWN_SECONDS: Final = 0.2
UP_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 0.2


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[OwnNats]:
    async with own_nats(tmp_path) as server:
        yield server


async def test_a_bus_that_is_killed_a_hundred_times_loses_and_doubles_nothing(
    database: Database, bus: OwnNats, tmp_path: Path
) -> None:
    drawn = random.Random(1)
    with capture_logs() as logs:
        async with open_fleet(database.app_dsn, database.owner_dsn, bus.url, tmp_path) as fleet:
            keys = [f"run-{number}" for number in range(RUNS)]
            working = asyncio.gather(*(_story(fleet, key, after=drawn.uniform(0, KILLS)) for key in keys))
            for number in range(1, KILLS + 1):
                await bus.kill()
                if number % WIPED_EVERY == 0:
                    bus.wipe()
                await asyncio.sleep(drawn.uniform(0, DOWN_SECONDS))
                await bus.start()
                await asyncio.sleep(drawn.uniform(0, UP_SECONDS))
            await working
            await fleet.completed(*keys, within=3 * PATIENCE_SECONDS)
            assert fleet.written() == sorted(keys)
            verification = await fleet.verified()
            assert verification.ok, verification.differences
    assert len([log for log in logs if log["event"] == "everything open was woken"]) >= KILLS // WIPED_EVERY
    assert not [log for log in logs if log["log_level"] in ("error", "critical")]


async def _story(fleet: Fleet, key: str, *, after: float) -> None:
    """Start a run by hand, have it approved; whoever is told to come again comes again, with the same command."""
    await asyncio.sleep(after)
    for act in (fleet.start, fleet.approve):
        while True:
            try:
                await act(key)
                break
            except TimeoutError:  # while it is killed every second a run may not come on for a minute
                continue
            except ApiError as error:
                if error.problem.status != 503:
                    raise
                await asyncio.sleep(AGAIN_SECONDS)
