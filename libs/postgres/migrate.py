"""Migrations: numbered files, applied in order, each in a transaction of its own.

One that the release before can live with says so by its name: `0007_expand_...`. Services of that release then start
on the migrated database too, which is what a rolling upgrade needs.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg

from contracts.errors import Broken, Unavailable
from libs.postgres.errors import translated
from libs.postgres.pool import readable

_FOLDER: Final = Path(__file__).parent / "migrations"
_FILE_NAME: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_LOCK: Final = 0x6D696E75746562
"""The advisory lock under which one process at a time migrates a database."""

_LEDGER: Final = """
create table if not exists schema_migrations(
  version int primary key, name text not null, applied_at timestamptz not null default clock_timestamp())
"""


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str


def _read() -> tuple[Migration, ...]:
    found = []
    for path in sorted(_FOLDER.glob("*.sql")):
        match = _FILE_NAME.fullmatch(path.name)
        assert match is not None, f"{path.name} is not named like 0001_what_it_does.sql"
        found.append(Migration(int(match[1]), match[2], path.read_text(encoding="utf-8")))
    assert [m.version for m in found] == list(range(1, len(found) + 1)), "migrations are numbered from 1 without gaps"
    return tuple(found)


MIGRATIONS: Final = _read()
SCHEMA_VERSION: Final = MIGRATIONS[-1].version
"""The schema that this code needs."""

_EXPANDS: Final = "expand_"


async def migrate(dsn: str) -> int:
    """Bring a database up to `SCHEMA_VERSION` and return how many migrations that took.

    Connects as the owner of the schema, who may create roles. Can be run again, and by several at once.

    Raises:
        contracts.errors.Unavailable: the database does not answer.
        contracts.errors.Rejected: ``settings.invalid``, the DSN cannot be read.
        contracts.errors.Broken: a migration was refused, or the database has other migrations than this code.
    """
    with translated():
        with readable():
            connection = await asyncpg.connect(dsn)
        try:
            applied = 0
            for migration in MIGRATIONS:
                applied += await _apply(connection, migration)
        finally:
            await connection.close()
    return applied


async def _apply(connection: asyncpg.Connection, migration: Migration) -> bool:
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(_LEDGER)
        name = await connection.fetchval("select name from schema_migrations where version = $1", migration.version)
        if name is not None:
            _same(migration, name)
            return False
        await connection.execute(migration.sql)
        await connection.execute(
            "insert into schema_migrations(version, name) values ($1, $2)", migration.version, migration.name
        )
        return True


async def check(connection: asyncpg.Connection | asyncpg.Pool) -> None:
    """Refuse a database whose schema this code cannot use.

    Raises:
        contracts.errors.Unavailable: it is older than `SCHEMA_VERSION`, was never migrated, or is newer by a migration
            that does not only expand.
        contracts.errors.Broken: it was migrated by something else.
    """
    with translated():
        ledger = await connection.fetchval("select to_regclass('schema_migrations')")
        rows = [] if ledger is None else await connection.fetch("select version, name from schema_migrations")
    names = {row["version"]: row["name"] for row in rows}
    found = max(names, default=0)
    if found < SCHEMA_VERSION:
        raise Unavailable(
            "postgres.schema_old",
            f"the database's schema is at version {found} and this release needs {SCHEMA_VERSION};"
            " run `minutebook migrate`, then start again",
        )
    for migration in MIGRATIONS:
        _same(migration, names.get(migration.version))
    strange = sorted(v for v, name in names.items() if v > SCHEMA_VERSION and not name.startswith(_EXPANDS))
    if strange:
        raise Unavailable(
            "postgres.schema_new",
            f"the database's schema is at version {found} and this release understands {SCHEMA_VERSION}"
            f" (migration {strange[0]} is {names[strange[0]]!r}); start the release whose `minutebook migrate` made it",
        )


def _same(migration: Migration, name: str | None) -> None:
    if name != migration.name:
        raise Broken(
            "postgres.schema_other",
            f"the database's migration {migration.version} is {name!r} and this release's is {migration.name!r}"
            f" (needed: version {SCHEMA_VERSION}); the DSN names another product's database",
        )
