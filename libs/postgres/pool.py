"""Connections and statements.

A pool may be told to act as a role, whoever logs in: what the role may not do is refused even with an owner's DSN.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Final, Literal

import asyncpg
import structlog

from contracts.errors import Rejected
from libs.postgres.errors import translated
from libs.postgres.keeping import KeepingPool

CONNECTIONS_MAX: Final = 8
STATEMENT_TIMEOUT: Final = timedelta(seconds=30)
STATEMENTS_CACHED_MAX: Final = 256
"""Enough for every shape of append of one service. The cache lives in the connection, by name."""

APP_ROLE: Final = "minutebook_app"
"""The role that services act as. The first migration makes it."""

_ROLE_SETTINGS: Final = {"plan_cache_mode": "force_generic_plan", "jit": "off", "enable_seqscan": "off"}
"""How statements of services are planned: once, and by index wherever there is one.

Plans are made while tables are small or not analysed yet, and kept: one that reads a whole table of heads would go on
doing so, at every append, until the next analysis. (What a role has set for itself counts at its own login only.)
"""

_MAY_NOT: Final = (
    asyncpg.InsufficientPrivilegeError,  # the login is no member of the role
    asyncpg.InvalidParameterValueError,  # there is no such role: the database was never migrated
    asyncpg.ProtocolViolationError,  # a pooler that passes no such settings on
)

_log = structlog.get_logger(component="postgres")


async def open_pool(
    dsn: str,
    *,
    application_name: str,
    connections_max: int = CONNECTIONS_MAX,
    statement_timeout: timedelta = STATEMENT_TIMEOUT,
    statements_cached: int = STATEMENTS_CACHED_MAX,
    role: str | None = None,
) -> asyncpg.Pool:
    """Open a pool with one connection at first. `statements_cached=0` suits a pooler that knows no prepared statements.

    Its connections act as `role`, when one is given and the login may take it; else as the login, which is logged.

    Raises:
        contracts.errors.Unavailable: nobody answers at the DSN, or it lets us not in.
        contracts.errors.Rejected: ``settings.invalid``, the DSN cannot be read.
    """

    async def opened(settings: Mapping[str, str]) -> asyncpg.Pool:
        return await KeepingPool(
            dsn,
            kept_max=connections_max // 2,
            min_size=1,
            max_size=connections_max,
            max_queries=0x7FFF_FFFF,  # a connection does not wear out; replacing it would throw its plans away
            command_timeout=statement_timeout.total_seconds(),
            statement_cache_size=statements_cached,
            max_cached_statement_lifetime=0,
            server_settings={"application_name": application_name, **settings},
            reset=_keep,
        )

    with translated(), readable():
        if role is not None:
            try:
                return await opened({**_ROLE_SETTINGS, "role": role})
            except _MAY_NOT as error:
                _log.warning("the login may not take the role, it acts as itself", role=role, sqlstate=error.sqlstate)
        return await opened({})


@contextmanager
def readable() -> Iterator[None]:
    """The driver quotes a DSN that it cannot read, with the password in it."""
    try:
        yield
    except (ValueError, asyncpg.ClientConfigurationError):
        raise Rejected(
            "settings.invalid",
            "the PostgreSQL DSN cannot be read: it should look like postgresql://user@host:5432/database",
        ) from None


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
