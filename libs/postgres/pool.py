"""Connections and statements."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, Literal

import asyncpg

from libs.postgres.errors import translated

CONNECTIONS_MAX: Final = 8
STATEMENT_TIMEOUT: Final = timedelta(seconds=30)
STATEMENTS_CACHED_MAX: Final = 256
"""Enough for every shape of append of one service. The cache lives in the connection, by name."""


async def open_pool(
    dsn: str,
    *,
    application_name: str,
    connections_max: int = CONNECTIONS_MAX,
    statement_timeout: timedelta = STATEMENT_TIMEOUT,
    statements_cached: int = STATEMENTS_CACHED_MAX,
) -> asyncpg.Pool:
    """Open a pool with one connection at first. `statements_cached=0` suits a pooler that knows no prepared statements.

    Raises:
        contracts.errors.Unavailable: nobody answers at the DSN, or it lets us not in.
    """
    with translated():
        return await asyncpg.create_pool(
            dsn,
            min_size=1,
            max_size=connections_max,
            max_queries=0x7FFF_FFFF,  # a connection does not wear out; replacing it would throw its plans away
            command_timeout=statement_timeout.total_seconds(),
            statement_cache_size=statements_cached,
            max_cached_statement_lifetime=0,
            server_settings={"application_name": application_name},
            reset=_keep,
        )


async def _keep(_connection: asyncpg.Connection) -> None:
    """No statement leaves session state behind, so giving a connection back needs no round trip."""


async def fetch(pool: asyncpg.Pool, sql: str, *arguments: Any) -> list[asyncpg.Record]:
    """Run one statement and return its rows. Raises as `libs.postgres.errors.translated` says."""
    with translated():
        return await pool.fetch(sql, *arguments)  # type: ignore[no-any-return]


async def fetchrow(pool: asyncpg.Pool, sql: str, *arguments: Any) -> asyncpg.Record | None:
    """Run one statement and return its first row."""
    with translated():
        return await pool.fetchrow(sql, *arguments)


async def execute(pool: asyncpg.Pool, sql: str, *arguments: Any) -> str:
    """Run one statement and return its command tag."""
    with translated():
        return await pool.execute(sql, *arguments)  # type: ignore[no-any-return]


@asynccontextmanager
async def transaction(
    pool: asyncpg.Pool,
    *,
    isolation: Literal["read_committed", "repeatable_read"] = "read_committed",
    readonly: bool = False,
) -> AsyncIterator[asyncpg.Connection]:
    """A transaction of several statements, for what is no hot path."""
    with translated():
        async with pool.acquire() as connection, connection.transaction(isolation=isolation, readonly=readonly):
            yield connection
