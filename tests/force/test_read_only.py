"""A PostgreSQL that reads and does not write, as a standby in a failover does: said once, refused with 503, gone on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import asyncpg
import pytest
from structlog.testing import capture_logs

from minutebook.client import ApiError
from tests.support.fleet import OwnNats, found, migrated, open_fleet, own_nats, own_postgres
from tests.support.places import AWAY, BEFORE, Logs, finish, said, spread

READS: Final = "PostgreSQL only reads, trying again"
WRITES: Final = "PostgreSQL writes again"
SENDS: Final = 5


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[OwnNats]:
    async with own_nats(tmp_path) as server:
        yield server


@pytest.mark.force_short
async def test_a_postgresql_that_only_reads_for_a_while(tmp_path: Path, bus: OwnNats, outage_seconds: float) -> None:
    async with own_postgres(tmp_path) as postgres:
        await migrated(postgres)
        app, owner = postgres.dsn("product", "minutebook_app"), postgres.dsn("product")
        with capture_logs() as logs:
            async with open_fleet(app, owner, bus.url, tmp_path, runner_slots=1) as fleet:
                await spread(fleet)
                await _only_read(postgres.dsn(), read_only=True)
                for number in range(SENDS):
                    with pytest.raises(ApiError) as refused:
                        await fleet.start(f"refused-{number}")
                    assert refused.value.problem.status == 503
                    assert await fleet.deliver("undelivered") == 503
                    assert (await fleet.view("parked")).state == "waiting_decision", "reads go on"
                    await asyncio.sleep(max(0.3, outage_seconds / SENDS))
                await _only_read(postgres.dsn(), read_only=False)
                assert await fleet.deliver("undelivered") == 202
                await fleet.started_by("undelivered")
                await fleet.start("refused-0")
                await finish(fleet, *BEFORE, "undelivered", "refused-0")
                missed = await _all_write(logs)
        assert {"planner", "api", "scheduler"} <= missed.keys()
        assert set(missed.values()) == {1}, "each service said it once"
        assert said(logs, AWAY, "service") == {}
        assert not [log for log in logs if log["log_level"] in ("error", "critical")]


async def _only_read(dsn: str, *, read_only: bool) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("set default_transaction_read_only = off")
        value = "on" if read_only else "off"
        await connection.execute(f"alter system set default_transaction_read_only = {value}")
        await connection.execute("select pg_reload_conf()")
    finally:
        await connection.close()


async def _all_write(logs: Logs) -> dict[object, int]:
    """Wait until every service that could not write has said that it can; returns how often each missed it."""

    async def told() -> dict[object, int] | None:
        missed = said(logs, READS, "service")
        return missed if missed == said(logs, WRITES, "service") else None

    return await found(told)
