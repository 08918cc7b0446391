"""Real PostgreSQL for tests: one server a session (each xdist worker has its own), one database a test.

Databases are cloned from a template that was migrated once, which takes some 30 ms.
"""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from libs.postgres import migrate
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
