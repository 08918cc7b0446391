"""A record that real services wrote and sealed, once a test process; each test gets a copy to do with as it likes."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import asyncpg

from libs.audit.seals import Sealer
from libs.audit.signing import Keyring, SigningKey, signing_key
from libs.config import Secrets
from libs.postgres import open_pool
from tests.support.fleet import open_fleet, own_nats
from tests.support.postgres import Database, PostgresServer

SEED: Final = base64.b64encode(b"a seed that only the tests know.").decode()
SECRETS: Final = Secrets(overrides={"seal_signing_key": SEED})


def key() -> SigningKey:
    """The key that the record is sealed with."""
    found = signing_key(SECRETS)
    assert found is not None
    return found


RING: Final = Keyring([key().public])


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: two runs that were completed, each with its write, and one that waits for its review."""

    template: str
    runs: dict[str, UUID]
    secret: str


@dataclass(frozen=True, slots=True)
class Audited:
    """A copy of that record. `pool` acts as its owner, who may do everything but sign."""

    database: Database
    pool: asyncpg.Pool
    runs: dict[str, UUID]
    secret: str

    async def forge(self, *statements: str, changed: int | None = None) -> None:
        """Change the record as only a superuser can: with no trigger in the way."""
        async with self.pool.acquire() as connection, connection.transaction():
            await connection.execute("set local session_replication_role = replica")
            for sql in statements:
                status = await connection.execute(sql)
                rows = int(status.split()[-1])
                assert rows == changed if changed is not None else rows, f"{sql}: {status}"


_WRITTEN: dict[int, Written] = {}


@asynccontextmanager
async def audited(server: PostgresServer, folder: Path) -> AsyncIterator[Audited]:
    """A copy of the record."""
    if id(server) not in _WRITTEN:
        _WRITTEN[id(server)] = await _write(server, folder)
    written = _WRITTEN[id(server)]
    name = await server.create(written.template)
    pool = await open_pool(server.dsn(name), application_name="tests-owner")
    try:
        database = Database(name, server.dsn(name), server.dsn(name, "minutebook_app"))
        yield Audited(database, pool, written.runs, written.secret)
    finally:
        await pool.close()
        await server.run(f"drop database {name} with (force)")


async def _write(server: PostgresServer, folder: Path) -> Written:
    name = await server.clone()
    async with own_nats(folder) as nats:
        app, owner = server.dsn(name, "minutebook_app"), server.dsn(name)
        pool = await open_pool(owner, application_name="tests-seals")
        sealer = Sealer(pool)
        async with open_fleet(app, owner, nats.url, folder) as fleet:
            await fleet.start("one")
            await fleet.approve("one")
            await fleet.completed("one")
            await sealer.seal(key())
            await fleet.start("two")
            await fleet.start("open")
            await fleet.waits("open")
            await fleet.approve("two")
            await fleet.completed("two")
            secret = fleet.client_secret
        assert await sealer.seal(key()) is not None
        await pool.close()
    return Written(name, fleet.runs, secret)
