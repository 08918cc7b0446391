"""The api on a real port: it starts, says why it cannot, and stops without cutting anybody off."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from contracts.errors import Unavailable
from libs.config import Secrets, Settings
from libs.eventstore.postgres import PostgresStore
from libs.postgres.pool import open_pool
from libs.process import Tools
from services.api.app import build
from services.api.server import ApiService
from tests.support.api import InProcessBus
from tests.support.postgres import Database


@pytest.fixture
async def tools(database: Database) -> AsyncIterator[Tools]:
    settings = Settings(postgres_dsn=database.app_dsn, nats_url="nats://127.0.0.1:1", http_port=0, drain_seconds=5)
    pool = await open_pool(database.app_dsn, application_name="test api")
    yield Tools(settings=settings, secrets=Secrets(), pool=pool, store=PostgresStore(pool), bus=InProcessBus())
    if not pool.is_closing():
        await pool.close()


def on_port(tools: Tools, port: int) -> Tools:
    return replace(tools, settings=tools.settings.model_copy(update={"http_port": port}))


async def test_it_listens_after_start_and_not_after_stop(tools: Tools) -> None:
    service = build(tools)
    await service.start()
    async with httpx.AsyncClient(base_url=service.url) as http:
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        assert (await http.get("/readyz")).json() == {"status": "ready", "database": True, "bus": True}
        assert "server" not in (await http.get("/healthz")).headers
    await service.stop()
    async with httpx.AsyncClient(base_url=service.url) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("/healthz")


async def test_a_port_in_use_is_said_in_words(tools: Tools) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        service = build(on_port(tools, port))
        with pytest.raises(Unavailable) as refused:
            await service.start()
    assert refused.value.code == "api.port_taken"
    assert str(port) in refused.value.message
    assert "MINUTEBOOK_HTTP_PORT" in refused.value.message
    await service.stop()


async def test_a_port_is_free_again_after_a_start_that_failed(tools: Tools) -> None:
    class NoBus(InProcessBus):
        async def start(self) -> None:
            raise Unavailable("bus.away", "nobody is there")

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    service = build(replace(on_port(tools, port), bus=NoBus()))
    with pytest.raises(Unavailable):
        await service.start()
    socket.create_server(("127.0.0.1", port)).close()


async def test_stop_answers_what_is_in_hand(tools: Tools) -> None:
    service = build(tools)
    entered = asyncio.Event()
    go_on = asyncio.Event()

    async def slow() -> dict[str, str]:
        entered.set()
        await go_on.wait()
        return {"status": "done"}

    service.app.get("/slow")(slow)
    await service.start()
    async with httpx.AsyncClient(base_url=service.url) as http:
        asked = asyncio.create_task(http.get("/slow"))
        await entered.wait()
        stopping = asyncio.create_task(service.stop())
        await _refuses(service)
        go_on.set()
        assert (await asked).json() == {"status": "done"}
        await stopping


async def _refuses(service: ApiService) -> None:
    host, port = service.url.removeprefix("http://").split(":")
    while True:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except (ConnectionRefusedError, ConnectionResetError):
            return
        writer.close()
        await asyncio.sleep(0)


async def test_an_answer_does_not_wait_for_a_body_that_nobody_wants(tools: Tools) -> None:
    service = build(tools)
    await service.start()
    try:
        host, port = service.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /api/public/workflows/events/x HTTP/1.1\r\nhost: x\r\ncontent-length: 5000000000\r\n\r\n{")
        answer = await reader.readuntil(b"\r\n")
        # An undeclared source is told so before a byte of the body is waited for.
        assert b" 404 " in answer
        writer.close()
    finally:
        await service.stop()
