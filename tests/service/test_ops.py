"""What a process says of itself: health, readiness that names what is missing, metrics."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import nats
import pytest
from prometheus_client.parser import text_string_to_metric_families

from contracts.errors import Rejected
from contracts.subjects import DURABLES
from libs.bus.declare import declare
from libs.bus.jetstream import JetStreamBus
from libs.config import Secrets, Settings
from libs.eventstore.postgres import PostgresStore
from libs.postgres import open_pool
from libs.process import Readiness, Service, Tools
from libs.process.ops import ops_app
from libs.telemetry import metrics
from services.host.roster import BUILDERS, ORDER, chosen
from tests.support.nats import NatsServer
from tests.support.postgres import Database, PostgresServer
from tests.support.record import eventually


@asynccontextmanager
async def planner(database: Database, url: str) -> AsyncIterator[Service]:
    pool = await open_pool(database.app_dsn, application_name="tests")
    settings = Settings(postgres_dsn=database.app_dsn, nats_url=url)
    tools = Tools(
        settings=settings,
        secrets=Secrets(),
        pool=pool,
        store=PostgresStore(pool),
        bus=JetStreamBus(url, name="planner"),
    )
    service = BUILDERS["planner"](tools)
    yield service
    await service.stop()


@asynccontextmanager
async def asking(*services: Service) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(ops_app(lambda: services, metrics.render))
    async with httpx.AsyncClient(transport=transport, base_url="http://ops") as http:
        yield http


async def test_readiness_names_what_is_not_usable(
    database: Database, own_nats_server: NatsServer, postgres_server: PostgresServer
) -> None:
    url = own_nats_server.next_url()
    await declare(url)
    async with planner(database, url) as service, asking(service) as http:
        assert await service.ready() == Readiness(started=False, database=True, bus=False, durables=False)
        await service.start()
        ready = await http.get("/readyz")
        assert ready.status_code == 200
        assert ready.json() == {
            "status": "ready",
            "services": {"planner": {"started": True, "database": True, "bus": True, "durables": True}},
        }

        client = await nats.connect(url)
        await client.jetstream().delete_consumer("HISTORY", "planner-history")
        await client.close()
        assert await service.ready() == Readiness(started=True, database=True, bus=True, durables=False)
        await declare(url)

        async def mended() -> bool:
            return (await service.ready()).ok

        await eventually(mended)

        own_nats_server.kill()
        gone = await http.get("/readyz")
        assert gone.status_code == 503
        assert gone.json()["status"] == "not_ready"
        assert gone.json()["services"]["planner"] == {
            "started": True,
            "database": True,
            "bus": False,
            "durables": False,
        }
        own_nats_server.start()
        await eventually(mended)

        await postgres_server.run(f"alter database {database.name} with allow_connections false")
        await postgres_server.run(
            f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{database.name}'"
        )
        away = (await http.get("/readyz")).json()["services"]["planner"]
        assert away == {"started": True, "database": False, "bus": True, "durables": True}
        await postgres_server.run(f"alter database {database.name} with allow_connections true")
        await eventually(mended)
        assert (await http.get("/healthz")).json() == {"status": "ok"}


async def test_nothing_served_is_not_ready_and_metrics_parse() -> None:
    async with asking() as http:
        assert (await http.get("/readyz")).status_code == 503
        assert (await http.get("/healthz")).status_code == 200
        page = await http.get("/metrics")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/plain")
        assert "minutebook_append_streams" in {family.name for family in text_string_to_metric_families(page.text)}
        assert (await http.get("/anything")).status_code == 404


def test_the_roster_knows_every_service() -> None:
    assert {durable.service for durable in DURABLES} <= set(ORDER)
    assert chosen(["all"]) == ORDER
    assert chosen(["api", "planner", "api"]) == ("planner", "api")
    with pytest.raises(Rejected, match="there is no service plannner; there are planner, decision"):
        chosen(["plannner"])
