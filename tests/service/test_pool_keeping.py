"""A pool that leaves connections out between statements: fewer are taken, none is lost, and the end waits for all."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from contracts.errors import Unavailable
from libs.postgres import execute, fetch, open_pool
from libs.postgres.pool import transaction
from tests.support.postgres import Database

PID = "select pg_backend_pid() as pid"


@pytest.fixture
async def small(database: Database) -> AsyncIterator[asyncpg.Pool]:
    """Four connections, of which two may stay out."""
    pool = await open_pool(database.app_dsn, application_name="keeping", connections_max=4)
    yield pool
    await pool.close()


async def backend(pool: asyncpg.Pool) -> int:
    pid: int = (await fetch(pool, PID))[0]["pid"]
    return pid


async def test_statements_one_after_another_use_one_connection(small: asyncpg.Pool) -> None:
    assert len({await backend(small) for _ in range(10)}) == 1


async def test_kept_connections_leave_room_for_transactions(small: asyncpg.Pool) -> None:
    """As many at a time as the pool has, whatever was kept before, and statements beside them."""
    await asyncio.gather(*(fetch(small, "select pg_sleep(0.01)") for _ in range(8)))
    async with transaction(small) as first, transaction(small) as second:
        pids = {await first.fetchval(PID), await second.fetchval(PID), await backend(small)}
    assert len(pids) == 3


async def test_a_connection_that_was_closed_is_not_used(small: asyncpg.Pool, owner_pool: asyncpg.Pool) -> None:
    kept = await backend(small)
    await execute(owner_pool, "select pg_terminate_backend($1, 5000)", kept)
    try:
        after = await backend(small)
    except Unavailable:  # the news of its end came with the statement
        after = await backend(small)
    assert after != kept


async def test_a_statement_that_fails_or_is_cancelled_leaves_the_pool_whole(small: asyncpg.Pool) -> None:
    for _ in range(6):
        with pytest.raises(asyncpg.PostgresError):
            await small.fetch("select 1 / 0")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await fetch(small, "select pg_sleep(10)")
    assert len(await asyncio.gather(*(backend(small) for _ in range(8)))) == 8


async def test_closing_closes_what_was_kept(small: asyncpg.Pool, owner_pool: asyncpg.Pool) -> None:
    pid = await backend(small)
    await asyncio.wait_for(small.close(), 5)
    assert (
        await owner_pool.fetchval("select count(*) from pg_stat_activity where pid = $1 and state = 'active'", pid) == 0
    )
    with pytest.raises(asyncpg.InterfaceError):
        await small.fetch("select 1")
