"""The in-process HTTP server: whose port it is, what its address says, and how it ends."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from contracts.errors import Unavailable
from libs.process.http import listen, serve

DRAIN = timedelta(seconds=5)


async def hello(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
async def test_its_address_is_one_that_this_machine_can_use(host: str) -> None:
    running = await serve(Starlette(routes=[Route("/", hello)]), listen(host, 0), drain=DRAIN)
    async with httpx.AsyncClient() as http:
        answer = await http.get(running.url)
    await running.stop()
    assert answer.text == "hello"
    assert "server" not in answer.headers


async def test_an_address_of_six_has_its_brackets() -> None:
    try:
        listener = listen("::1", 0)
    except Unavailable:
        pytest.skip("this machine has no IPv6")
    running = await serve(Starlette(), listener, drain=DRAIN)
    await running.stop()
    assert running.url.startswith("http://[::1]:")


async def test_a_port_that_cannot_be_had_says_which_and_why() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"port {port} of 127.0.0.1 cannot be had: Address already in use"):
            listen("127.0.0.1", port)
    with pytest.raises(Unavailable, match="cannot be had"):
        listen("no.such.host.invalid", 0)


async def test_an_application_that_fails_to_start_frees_its_port() -> None:
    @asynccontextmanager
    async def broken(_app: Starlette) -> AsyncIterator[None]:
        raise RuntimeError("no")
        yield

    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    with pytest.raises(Unavailable) as refused:
        await serve(Starlette(lifespan=broken), listener, drain=DRAIN)
    assert refused.value.code == "http.not_started"
    socket.create_server(("127.0.0.1", port)).close()


async def test_stop_answers_what_is_in_hand_and_takes_no_more() -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_request: Request) -> PlainTextResponse:
        entered.set()
        await go_on.wait()
        return PlainTextResponse("done")

    running = await serve(Starlette(routes=[Route("/", slow)]), listen("127.0.0.1", 0), drain=DRAIN)
    async with httpx.AsyncClient() as http:
        asked = asyncio.create_task(http.get(running.url))
        await entered.wait()
        stopping = asyncio.create_task(running.stop())
        go_on.set()
        assert (await asked).text == "done"
        await stopping
        with pytest.raises(httpx.ConnectError):
            await http.get(running.url)
