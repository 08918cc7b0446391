"""Opens what one service works with: a pool, a store on it and a connection to the bus, shared with nobody."""

from datetime import timedelta
from typing import Final

import asyncpg

from contracts.envelope import Owner as ServiceName
from libs.bus.jetstream import JetStreamSettings
from libs.config import Secrets, Settings
from libs.eventstore.letters import PostgresLetters
from libs.eventstore.mapper import Mapper
from libs.eventstore.people import PostgresPeople
from libs.eventstore.postgres import PostgresStore
from libs.postgres.migrate import check
from libs.postgres.pool import APP_ROLE, open_pool
from libs.process.letters import LetterBus, Letters
from libs.process.service import Tools
from libs.sealing import Sealing

FINISHING: Final = 0.75
"""The share of the drain time in which work in hand may still finish. The rest is for handing back and closing."""


async def open_tools(service: ServiceName, settings: Settings, secrets: Secrets) -> Tools:
    """Open the tools of a service. The bus connects when the service starts.

    Its statements run as `libs.postgres.pool.APP_ROLE`, whoever the DSN logs in as. Its settings are those given, but
    for `drain_seconds`, of which a part is kept back.

    Raises:
        contracts.errors.Unavailable: the database does not answer, or its schema is another than this code needs.
        contracts.errors.Rejected: the DSN cannot be read.
    """
    pool = await open_pool(settings.postgres_dsn, application_name=f"minutebook {service}", role=APP_ROLE)
    try:
        await check(pool)
        store = PostgresStore(pool, mapper=mapper_on(pool, secrets), service=service)
        await store.era()
    except BaseException:
        await pool.close()
        raise
    finishing = settings.drain_seconds * FINISHING
    return Tools(
        settings=settings.model_copy(update={"drain_seconds": finishing}),
        secrets=secrets,
        pool=pool,
        store=store,
        bus=LetterBus(
            settings.nats_url,
            name=service,
            settings=JetStreamSettings(stop_timeout=timedelta(seconds=finishing)),
            letters=Letters(PostgresLetters(pool, service=service), service, tries_max=settings.dead_letter_tries),
        ),
    )


def mapper_on(pool: asyncpg.Pool, secrets: Secrets) -> Mapper:
    """How facts of a database are written and read, with the keys of persons sealed where there is a sealing key.

    Without one they lie there unsealed: `minutebook serve` and `provision` refuse that, tests do not care.

    Raises:
        contracts.errors.Unavailable: ``sealing.key_malformed``.
    """
    sealing = Sealing(secrets)
    return Mapper(people=PostgresPeople(pool, sealing if sealing.ready() else None))
