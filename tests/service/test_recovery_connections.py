"""Connections to a PostgreSQL that dies: whatever breaks in the driver is an outage, never a bug, and pools mend."""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from contracts.errors import MinutebookError, Unavailable
from libs.postgres import fetch, open_pool
from libs.postgres.errors import translated
from tests.support.fleet import own_postgres
from tests.support.postgres import Database

READERS = 12
KILLS = 2
SQL = "select g, repeat('x', 200) as text from generate_series(1, $1) g"


@pytest.mark.parametrize(
    "raised",
    [
        asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress"),
        asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.CannotConnectNowError("the database system is starting up"),
        asyncpg.CrashShutdownError("terminating connection because of crash of another server process"),
        asyncpg.QueryCanceledError("canceling statement due to statement timeout"),
        asyncpg.DiskFullError("could not extend file: No space left on device"),
        ConnectionResetError(),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_an_outage_raises_is_worth_another_try(raised: Exception) -> None:
    with pytest.raises(Unavailable), translated():
        raise raised


def test_a_disk_without_room_is_told_from_a_server_that_is_away() -> None:
    with pytest.raises(Unavailable, match="more room") as full, translated():
        raise asyncpg.DiskFullError("could not extend file: No space left on device")
    assert full.value.code == "postgres.full"


async def test_a_statement_that_takes_too_long_is_given_up_and_its_connection_mended(database: Database) -> None:
    brief = timedelta(milliseconds=100)
    pool = await open_pool(database.app_dsn, application_name="test", connections_max=1, statement_timeout=brief)
    with pytest.raises(Unavailable):
        await fetch(pool, "select pg_sleep(30)")
    assert [row["n"] for row in await fetch(pool, "select 1 as n")] == [1]
    await pool.close()


async def test_pools_survive_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    async with own_postgres(tmp_path) as server:
        pools = [await open_pool(server.dsn(), application_name=f"test {n}") for n in range(2)]
        fates: Counter[str] = Counter()
        over = asyncio.Event()

        async def read(pool: asyncpg.Pool) -> None:
            while not over.is_set():
                try:
                    rows = await fetch(pool, SQL, 100)
                except MinutebookError as error:
                    fates[type(error).__name__] += 1
                    await asyncio.sleep(0)
                else:
                    assert len(rows) == 100
                    fates["answered"] += 1

        async def answered(more: int) -> None:
            wanted = fates["answered"] + more
            while fates["answered"] < wanted:  # noqa: ASYNC110 - the others count
                await asyncio.sleep(0.01)

        readers = [asyncio.create_task(read(pool)) for pool in pools for _ in range(READERS)]
        async with asyncio.timeout(40):
            for _ in range(KILLS):
                await answered(200)
                await server.kill()
                await server.start()
            await answered(1_000)
        over.set()
        await asyncio.gather(*readers)
        assert fates.keys() == {"answered", "Unavailable"}
        for pool in pools:
            for _ in range(20):
                await fetch(pool, SQL, 1)
            await pool.close()
