"""Opens what one service works with: a pool, a store on it and a connection to the bus, shared with nobody."""

from contracts.envelope import Owner as ServiceName
from libs.bus.jetstream import JetStreamBus
from libs.config import Secrets, Settings
from libs.eventstore.postgres import PostgresStore
from libs.postgres.migrate import check
from libs.postgres.pool import open_pool
from libs.process.service import Tools


async def open_tools(service: ServiceName, settings: Settings, secrets: Secrets) -> Tools:
    """Open the tools of a service. The bus connects when the service starts.

    Raises:
        contracts.errors.Unavailable: the database does not answer, or its schema is another than this code needs.
    """
    pool = await open_pool(settings.postgres_dsn, application_name=f"minutebook {service}")
    try:
        await check(pool)
    except BaseException:
        await pool.close()
        raise
    return Tools(
        settings=settings,
        secrets=secrets,
        pool=pool,
        store=PostgresStore(pool),
        bus=JetStreamBus(settings.nats_url, name=service),
    )
