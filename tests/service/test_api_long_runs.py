"""Runs of thousands of facts, as the api shows them: from a snapshot as from the whole, and never all at once."""

from collections.abc import AsyncIterator
from typing import Any, Final
from uuid import UUID

import pytest

from contracts import ids
from contracts.base import Event
from contracts.events.attempt import AttemptQueued
from contracts.events.run import Feedback, RunLooped, RunStepQueued, RunStepSucceeded
from libs.domain import attempt, run
from libs.eventstore.port import Snapshot
from libs.eventstore.postgres import PostgresStore
from libs.eventstore.snapshots import Kept, Snapshots
from services.api.views import ATTEMPTS_SHOWN_MAX
from tests.support.api import World, world
from tests.support.postgres import Database
from tests.support.record import Record

ROUNDS: Final = ATTEMPTS_SHOWN_MAX + 20


@pytest.fixture
async def api(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        yield made


async def grown(api: World) -> UUID:
    """A run whose one step was sent back hundreds of times."""
    pool = api.tools.require_pool()
    record = Record(api.database, pool, PostgresStore(pool), api.place.tenant_group, api.place.tenant)
    run_id, now = await api.start(), await api.store.now()
    feedback = Feedback(source_step="draft", kind="gate", comment="again", previous=None)
    facts: list[Event] = []
    for number in range(2, ROUNDS + 1):
        attempt_id = ids.attempt(run_id, "draft", number, 1)
        facts += [
            RunStepSucceeded(at=now, step="draft", output=None),
            RunLooped(
                at=now,
                from_step="draft",
                to_step="draft",
                reset=("draft",),
                count=number,
                reason="gate",
                feedback=feedback,
            ),
            RunStepQueued(at=now, step="draft", round=number, attempt=1, attempt_id=attempt_id),
        ]
    await record.plant(run.CATEGORY, run_id, *facts)
    request = await record.keep({})
    births = {
        ids.attempt(run_id, "draft", number, 1): [
            AttemptQueued(
                at=now,
                run_id=run_id,
                step="draft",
                round=number,
                number=1,
                executor="echo",
                queue="default",
                request=request,
            )
        ]
        for number in range(2, ROUNDS + 1)
    }
    await record.plant_all(attempt.CATEGORY, births)
    return run_id


async def shown(api: World, run_id: UUID) -> dict[str, Any]:
    view: dict[str, Any] = await api.get(f"/runs/{run_id}")
    return {name: value for name, value in view.items() if name != "worked_seconds"}


async def test_a_run_is_shown_from_a_snapshot_as_from_the_whole(api: World) -> None:
    run_id = await grown(api)
    whole = await shown(api, run_id)
    loaded = (await api.store.load("run", {run_id: 0})).streams[run_id]
    assert whole["version"] == loaded.version > 1_500

    below, snapshots = loaded.events[:1_000], Snapshots(run.CATEGORY)
    kept = snapshots.write(Kept(run.CATEGORY.initial).above(run.CATEGORY, below))
    snapshot = Snapshot(run_id, 1_000, api.place.tenant_group, below[-1].digest, kept)
    await api.store.keep_snapshots(snapshots.schema, [snapshot])
    assert await shown(api, run_id) == whole


async def test_of_very_many_attempts_those_of_the_current_round_are_shown(api: World) -> None:
    run_id = await grown(api)
    (draft, *_) = (await shown(api, run_id))["steps"]
    assert [(attempt["round"], attempt["number"]) for attempt in draft["attempts"]] == [(ROUNDS, 1)]


async def test_the_pages_of_its_history_are_the_whole(api: World) -> None:
    run_id = await grown(api)
    entries: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": 200}
    while True:
        page = await api.get(f"/runs/{run_id}/history", params=query)
        entries += page["items"]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    own = [entry["version"] for entry in entries if entry["stream"] == "run"]
    assert own == list(range(1, len(own) + 1))
    assert len({entry["stream_id"] for entry in entries if entry["stream"] == "attempt"}) == ROUNDS
    assert len({(entry["stream_id"], entry["version"]) for entry in entries}) == len(entries)
