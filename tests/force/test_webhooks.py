"""Deliveries that come fifty times at once, and again with another body: one run each, and nothing is swallowed."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from libs.bus.declare import declare
from libs.domain.inbound import BODIES_MAX
from tests.support.fleet import Fleet, found, open_fleet
from tests.support.postgres import Database

KEYS: Final = 10
TIMES: Final = 50


@pytest.fixture
async def fleet(database: Database, nats_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    await declare(nats_url)
    opened = open_fleet(database.app_dsn, database.owner_dsn, nats_url, tmp_path, twice=("ingest", "planner", "api"))
    async with opened as fleet:
        yield fleet


@pytest.mark.force_short
async def test_deliveries_that_come_fifty_times_at_once_start_one_run_each(fleet: Fleet) -> None:
    for number in range(KEYS):
        statuses = Counter(await asyncio.gather(*(fleet.deliver(f"STORM-{number}") for _ in range(TIMES))))
        assert statuses == {202: 1, 200: TIMES - 1}
    for number in range(KEYS):
        await fleet.started_by(f"STORM-{number}")
    assert await _runs(fleet) == {f"STORM-{number}": 1 for number in range(KEYS)}
    (event, *others) = [event async for event in fleet.client.events(source="jira")]
    assert len(others) == KEYS - 1
    assert event.unmatched is None


@pytest.mark.force_short
async def test_another_body_under_the_same_id_is_noted_and_starts_nothing(fleet: Fleet) -> None:
    """Whichever of them comes first is the event; of the others it is noted that they differed, up to a limit."""
    bodies = [f"summary {n}" for n in range(TIMES)]
    statuses = await asyncio.gather(*(fleet.deliver("TWIN-1", summary=body) for body in bodies))
    assert Counter(statuses) == {202: 1, 200: TIMES - 1}
    await fleet.started_by("TWIN-1")
    (event,) = [event async for event in fleet.client.events(source="jira")]

    async def noted() -> bool | None:
        differed = (await fleet.client.event(event.event_id)).bodies_differed
        return True if differed == BODIES_MAX else None

    await found(noted)
    assert await _runs(fleet) == {"TWIN-1": 1}
    assert (await fleet.verified()).ok


async def _runs(fleet: Fleet) -> Counter[str]:
    """How many runs each key has."""
    summaries = [summary async for summary in fleet.client.runs(definition="quick")]
    views = [await fleet.client.run(summary.run_id) for summary in summaries]
    return Counter(str(view.context["jira_key"]) for view in views)
