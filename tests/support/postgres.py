"""Real PostgreSQL for tests: one server a session (each xdist worker has its own), one database a test.

`world` runs a test on both adapters of the event store.

Databases are cloned from a template that was migrated once, which takes some 30 ms.
"""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from libs.eventstore.memory import MemoryStore
from libs.eventstore.postgres import PostgresStore
from libs.postgres import execute, migrate, open_pool
from services.dev.embedded_postgres import RunningPostgres, start_postgres

TEMPLATE: Final = "template_minutebook"


@dataclass(slots=True)
class PostgresServer:
    """A running server. `clone` makes databases, and the template when it is first needed."""

    running: RunningPostgres
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _template: bool = False

    def dsn(self, database: str, user: str = "postgres") -> str:
        return self.running.dsn(user, database)

    async def create(self, template: str = "template0") -> str:
        """Create a database and return its name."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        await self.run(f"create database {name} template {template}")
        return name

    async def clone(self) -> str:
        """Create a migrated, empty database and return its name."""
        if not self._template:
            await self.run(f"create database {TEMPLATE} template template0")
            await migrate(self.dsn(TEMPLATE))
            self._template = True
        return await self.create(TEMPLATE)

    async def run(self, sql: str, database: str = "postgres") -> None:
        """Run SQL as the owner."""
        connection = await asyncpg.connect(self.dsn(database))
        try:
            await connection.execute(sql)
        finally:
            await connection.close()


@dataclass(frozen=True, slots=True)
class Database:
    """A test's own database, by the two roles that matter."""

    name: str
    owner_dsn: str
    app_dsn: str


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A PostgreSQL 18 of this session, deleted at its end."""
    folder: Path = tmp_path_factory.mktemp("pg")
    running = asyncio.run(start_postgres(folder))
    try:
        yield PostgresServer(running)
    finally:
        asyncio.run(running.remove())


@pytest.fixture
async def database(postgres_server: PostgresServer) -> AsyncIterator[Database]:
    """A migrated, empty database, dropped after the test."""
    name = await postgres_server.clone()
    yield Database(name, postgres_server.dsn(name), postgres_server.dsn(name, "minutebook_app"))
    await postgres_server.run(f"drop database {name} with (force)")


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[asyncpg.Pool]:
    """The services' own way in."""
    pool = await open_pool(database.app_dsn, application_name="tests")
    yield pool
    await pool.close()


@pytest.fixture
async def owner_pool(database: Database) -> AsyncIterator[asyncpg.Pool]:
    """The way in of who may do everything."""
    pool = await open_pool(database.owner_dsn, application_name="tests-owner")
    yield pool
    await pool.close()


class World:
    """A store of either kind, and its clock."""

    def __init__(self, store: PostgresStore | MemoryStore, owner_pool: asyncpg.Pool | None = None) -> None:
        self.store = store
        self._owner_pool = owner_pool

    async def advance(self, by: timedelta) -> None:
        if isinstance(self.store, MemoryStore):
            self.store.advance(by)
        else:
            assert self._owner_pool is not None
            await execute(self._owner_pool, "update clock_shift set shift = shift + $1::interval", by)


@pytest.fixture(params=["memory", "postgres"])
def world(request: pytest.FixtureRequest) -> World:
    """An empty store of each kind in turn."""
    if request.param == "memory":
        return World(MemoryStore())
    return World(PostgresStore(request.getfixturevalue("pool")), request.getfixturevalue("owner_pool"))
