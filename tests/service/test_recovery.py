"""Servers that go away and come back under all seven services: what was open goes on by itself, and nothing twice."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import asyncpg
import nats
import pytest
from nats.js.api import DiscardPolicy
from structlog.testing import capture_logs

from libs.bus.declare import declare
from minutebook.client import ApiError
from tests.support.fleet import Fleet, OwnNats, found, migrated, open_fleet, own_nats, own_postgres
from tests.support.places import AWAY, BEFORE, SERVICES, Logs, all_back, drafted, finish, said, spread
from tests.support.postgres import Database


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[OwnNats]:
    async with own_nats(tmp_path) as server:
        yield server


@pytest.fixture
async def fleet(database: Database, bus: OwnNats, tmp_path: Path) -> AsyncIterator[Fleet]:
    async with open_fleet(database.app_dsn, database.owner_dsn, bus.url, tmp_path, runner_slots=1) as fleet:
        yield fleet


async def test_a_bus_that_was_away_is_gone_on_with(fleet: Fleet, bus: OwnNats, outage_seconds: float) -> None:
    with capture_logs() as logs:
        await spread(fleet)
        await bus.kill()
        assert await fleet.deliver("delivered") == 202
        with pytest.raises(ApiError) as refused:
            await fleet.start("refused")
        assert (refused.value.problem.status, "command_id" in refused.value.problem.model_dump_json()) == (503, True)
        await asyncio.sleep(outage_seconds)
        await bus.start()
        await fleet.started_by("delivered")
        await fleet.start("refused")
        await finish(fleet, *BEFORE, "delivered", "refused")
    for event in ("bus connection lost, connecting again", "bus connection restored"):
        assert said(logs, event, "bus") == dict.fromkeys(SERVICES, 1)
    assert not [log for log in logs if log["log_level"] in ("error", "critical")]


@pytest.mark.force_short
async def test_a_bus_that_lost_everything_is_declared_again_and_everything_open_is_woken(
    fleet: Fleet, bus: OwnNats
) -> None:
    """The answer of `lost` was acknowledged to its publisher, consumed by nobody and then gone: a wake alone helps."""
    client = await nats.connect(bus.url, allow_reconnect=False)
    with capture_logs() as logs:
        await fleet.start("lost")
        await fleet.waits("lost")
        await spread(fleet)
        await client.jsm().delete_consumer("HISTORY", "planner-history")
        await fleet.approve("lost")
        await client.close()
        await bus.kill()
        bus.wipe()
        assert await fleet.deliver("delivered") == 202
        await bus.start()
        await fleet.started_by("delivered")
        await finish(fleet, *BEFORE, "lost", "delivered")
    woken = [log["woken"] for log in logs if log["event"] == "everything open was woken"]
    assert len(woken) == 1
    assert woken[0] > 0
    assert not [log for log in logs if log["log_level"] in ("error", "critical")]


async def test_streams_and_durables_that_were_deleted_are_declared_again(fleet: Fleet, bus: OwnNats) -> None:
    client = await nats.connect(bus.url)
    with capture_logs():
        await spread(fleet)
        await client.jsm().delete_stream("HISTORY")
        await client.jsm().delete_consumer("WORK", "runner-work")
        await client.jsm().delete_consumer("WAKE", "planner-wake")
        assert await fleet.deliver("delivered") == 202
        await fleet.started_by("delivered")
        await finish(fleet, *BEFORE, "delivered")
        assert await declare(bus.url) == ()
    await client.close()


async def test_a_full_stream_loses_no_fact(database: Database, bus: OwnNats, tmp_path: Path) -> None:
    """As a full disk does, it refuses what is published: the outbox has it until there is room."""
    client = await nats.connect(bus.url)
    js = client.jetstream()
    patient = open_fleet(database.app_dsn, database.owner_dsn, bus.url, tmp_path, ask_timeout_seconds=9.0)
    with capture_logs() as logs:
        async with patient as fleet:
            full = replace((await js.stream_info("HISTORY")).config, max_msgs=1, discard=DiscardPolicy.NEW)
            await js.update_stream(full)
            for key in ("first", "second"):
                await fleet.start(key)
                await drafted(fleet, key)
            assert {(await fleet.view(key)).state for key in fleet.runs} == {"running"}, "the planner was not told"
            await js.update_stream(replace(full, max_msgs=-1))
            assert await declare(bus.url) == ("updated stream HISTORY: discard",)
            await finish(fleet, "first", "second")
    refused = [log for log in logs if log["event"].startswith("facts are committed but not published")]
    assert len(refused) == 1, "the runner says it once for both; a start puts nothing into this stream"
    assert not [log for log in logs if log["event"] == "bus error"]
    await client.close()


async def test_connections_to_postgresql_that_are_cut_again_and_again(fleet: Fleet, database: Database) -> None:
    with capture_logs() as logs:
        await spread(fleet)
        connection = await asyncpg.connect(database.owner_dsn)
        for _ in range(10):
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and pid <> pg_backend_pid()",
                database.name,
            )
        await connection.close()
        await finish(fleet, *BEFORE)
        assert set((await all_back(logs)).values()) <= {1}
    assert not [log for log in logs if log["log_level"] in ("error", "critical")]


@pytest.mark.force_short
async def test_a_postgresql_that_was_killed_and_started_again(
    tmp_path: Path, bus: OwnNats, outage_seconds: float
) -> None:
    async with own_postgres(tmp_path) as postgres:
        await migrated(postgres)
        app, owner = postgres.dsn("product", "minutebook_app"), postgres.dsn("product")
        with capture_logs() as logs:
            async with open_fleet(app, owner, bus.url, tmp_path, runner_slots=1) as fleet:
                await spread(fleet)
                await postgres.kill()
                with pytest.raises(ApiError) as refused:
                    await fleet.start("refused")
                assert refused.value.problem.status == 503
                assert await fleet.deliver("undelivered") == 503
                await _all_away(fleet, logs)
                await asyncio.sleep(outage_seconds)
                await postgres.start()
                assert await fleet.deliver("undelivered") == 202
                await fleet.started_by("undelivered")
                await fleet.start("refused")
                await finish(fleet, *BEFORE, "undelivered", "refused")
                assert await all_back(logs) == dict.fromkeys(SERVICES, 1)
        assert not [log for log in logs if log["log_level"] in ("error", "critical")]


async def _all_away(fleet: Fleet, logs: Logs) -> None:
    """Wait until every service has had to ask PostgreSQL: for its work, or to say whether it is ready."""

    async def told() -> bool | None:
        assert not await fleet.ready()
        return True if said(logs, AWAY, "service").keys() == SERVICES else None

    await found(told)


@pytest.mark.force_short
async def test_both_servers_away_at_once(tmp_path: Path, bus: OwnNats, outage_seconds: float) -> None:
    async with own_postgres(tmp_path) as postgres:
        await migrated(postgres)
        app, owner = postgres.dsn("product", "minutebook_app"), postgres.dsn("product")
        with capture_logs() as logs:
            async with open_fleet(app, owner, bus.url, tmp_path, runner_slots=1) as fleet:
                await spread(fleet)
                await asyncio.gather(postgres.kill(), bus.kill())
                assert await fleet.deliver("undelivered") == 503
                await _all_away(fleet, logs)
                await asyncio.sleep(outage_seconds)
                await bus.start()
                await postgres.start()
                assert await fleet.deliver("undelivered") == 202
                await fleet.started_by("undelivered")
                await finish(fleet, *BEFORE, "undelivered")
                assert await all_back(logs) == dict.fromkeys(SERVICES, 1)
        assert not [log for log in logs if log["log_level"] in ("error", "critical")]
