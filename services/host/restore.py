"""What follows a restored database: a new era of the record, and a bus that knows nothing of what was lost."""

from dataclasses import dataclass

from libs.bus.declare import purge
from libs.eventstore.eras import begin_era
from services.host.prepare import migrated


@dataclass(frozen=True, slots=True)
class Restored:
    """The era that is current now. `is_new` is false when nothing had been written in it yet."""

    era: int
    is_new: bool
    migrations: tuple[str, ...]
    bus: tuple[str, ...]

    @property
    def changes(self) -> tuple[str, ...]:
        """One line each."""
        era = f"era {self.era} begins" if self.is_new else f"era {self.era} begins anew: nothing was written in it"
        return (*(f"applied migration {name}" for name in self.migrations), era, *self.bus)


async def restore(postgres_dsn: str, nats_url: str, *, reason: str) -> Restored:
    """Begin the era first: from there on no process that knew the lost time can append. Then empty the bus.

    Safe to repeat, and to be repeated when the bus was not there. The DSN logs in as the owner of the schema.

    Raises:
        contracts.errors.Unavailable: one of the two does not answer.
        contracts.errors.Broken: one of the two refuses.
    """
    migrations = await migrated(postgres_dsn)
    begun = await begin_era(postgres_dsn, reason=reason)
    return Restored(begun.number, begun.is_new, migrations, await purge(nats_url))
