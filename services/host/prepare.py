"""Makes a database and a NATS server ready for the services: schema and role, streams and durables."""

from dataclasses import dataclass

from libs.bus.declare import declare
from libs.postgres.migrate import MIGRATIONS, SCHEMA_VERSION, migrate


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was changed; nothing when all was right already."""

    migrations: tuple[str, ...]
    bus: tuple[str, ...]
    schema_version: int = SCHEMA_VERSION

    @property
    def changes(self) -> tuple[str, ...]:
        """One line each."""
        return (*(f"applied migration {name}" for name in self.migrations), *self.bus)


async def prepare(postgres_dsn: str, nats_url: str) -> Prepared:
    """Migrate the database, then declare what the bus must have. Safe to repeat, also by several at once.

    The DSN logs in as the owner of the schema, who may create the role that services act as.

    Raises:
        contracts.errors.Unavailable: one of the two does not answer.
        contracts.errors.Broken: one of the two refuses.
    """
    return Prepared(migrations=await migrated(postgres_dsn), bus=await declare(nats_url))


async def migrated(postgres_dsn: str) -> tuple[str, ...]:
    """Migrate the database; returns the names of the migrations that this took. Raises as `prepare` does."""
    count = await migrate(postgres_dsn)
    return tuple(f"{each.version:04d}_{each.name}" for each in MIGRATIONS[len(MIGRATIONS) - count :])
