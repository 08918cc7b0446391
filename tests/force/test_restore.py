"""A database that is restored to an earlier point, while the world remembers what was written after it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import asyncpg
import pytest
from structlog.testing import capture_logs

from libs.eventstore.eras import ENDED
from minutebook.client import ApiError
from minutebook.models.states import SettleVerdict
from services.host.restore import restore
from tests.support.fleet import Fleet, OwnNats, OwnPostgres, found, migrated, open_fleet, own_nats, own_postgres

A_WHILE: Final = timedelta(minutes=5)
"""After it no call that the record does not know can be under way any more."""

BEFORE: Final = ("written", "approved", "parked", "both")
"""Runs that the backup knows: the first has written, the others wait to be approved."""


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[OwnNats]:
    async with own_nats(tmp_path) as server:
        yield server


@pytest.fixture
async def postgres(tmp_path: Path) -> AsyncIterator[OwnPostgres]:
    async with own_postgres(tmp_path) as server:
        await migrated(server)
        yield server


@pytest.mark.force_short
async def test_after_a_restore_everything_goes_on_and_nothing_is_written_twice(
    postgres: OwnPostgres, bus: OwnNats, tmp_path: Path
) -> None:
    app, owner = postgres.dsn("product", "minutebook_app"), postgres.dsn("product")
    with capture_logs() as logs:
        async with open_fleet(app, owner, bus.url, tmp_path) as fleet:
            for key in BEFORE:
                await fleet.start(key)
            await fleet.approve("written")
            await fleet.completed("written")
            for key in BEFORE[1:]:
                await fleet.waits(key)
            backup = await postgres.backup()

            await fleet.start("lost")
            for key in ("approved", "both", "lost"):
                await fleet.approve(key)
            await fleet.completed("approved", "both", "lost")
            assert fleet.written() == ["approved", "both", "lost", "written"]

            await postgres.restore(backup)
            restored = await restore(owner, bus.url, reason="the disk of the test was lost")
            assert (restored.era, restored.is_new) == (2, True)
            await _all_outlived(fleet)
            runs = fleet.runs
        async with open_fleet(app, owner, bus.url, tmp_path) as fleet:
            fleet.runs.update(runs)
            await fleet.completed("written")
            await _asked_again_and_in_doubt(fleet, *BEFORE[1:])
            await _settled_by_what_the_target_shows(fleet, *BEFORE[1:])
            await fleet.start("new")
            await fleet.approve("new")
            await fleet.completed("new")
            assert fleet.written() == ["approved", "both", "lost", "new", "parked", "written"]
            verification = await fleet.verified()
            assert verification.ok, verification.differences
    woken = [log for log in logs if log["event"] == "everything open was woken"]
    assert [log["woken"] > 0 for log in woken] == [False, True], "the first one of an empty record, then the restore's"


async def _all_outlived(fleet: Fleet) -> None:
    """Who still runs from before the restore is not ready, says so, and takes nothing."""
    async with asyncio.timeout(30):
        await asyncio.gather(*(service.outlived.wait() for service in fleet.services.values()))
    assert await fleet.ready() == frozenset()
    with pytest.raises(ApiError) as refused:
        await fleet.start("refused")
    assert (refused.value.problem.status, refused.value.problem.code) == (503, ENDED)


async def _asked_again_and_in_doubt(fleet: Fleet, *keys: str) -> None:
    """What was answered in the lost time is asked anew, and its write then waits for a verdict, whatever was done."""
    for key in keys:
        await fleet.approve(key)

        async def suspended(key: str = key) -> str | None:
            view = await fleet.view(key)
            return view.reason if view.state == "suspended" else None

        assert "doubt" in (await found(suspended) or "")
    effects = {effect.run_id: effect async for effect in fleet.client.effects(state="in_doubt")}
    assert effects.keys() == {fleet.runs[key] for key in keys}


async def _settled_by_what_the_target_shows(fleet: Fleet, *keys: str) -> None:
    """Once the lost calls are over everywhere: what is there has landed, what is not is tried again, which sends it."""
    written, connection = fleet.written(), await asyncpg.connect(fleet.owner_dsn)
    await connection.execute("update clock_shift set shift = shift + $1::interval", A_WHILE)
    await connection.close()
    effects = {effect.run_id: effect async for effect in fleet.client.effects(state="in_doubt")}
    for key in keys:
        effect_id, arm = effects[fleet.runs[key]].effect_id, effects[fleet.runs[key]].arm
        verdict: SettleVerdict = "landed" if key in written else "try_again"

        async def settled(effect_id: UUID = effect_id, verdict: SettleVerdict = verdict, arm: int = arm) -> bool | None:
            try:
                await fleet.client.settle_effect(effect_id, verdict, arm=arm, idempotency_key=str(effect_id))
            except ApiError as error:
                if error.problem.status != 503:  # the api has not seen yet how late it is
                    raise
                return None
            return True

        await found(settled)
    await fleet.completed(*keys)
