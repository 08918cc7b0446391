"""An application served inside the process: its address, its end, and its failures."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from contracts.errors import Unavailable
from services.dev.http import serve


async def test_it_is_there_at_once_and_gone_after_stop() -> None:
    async def hello(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    server = await serve(Starlette(routes=[Route("/", hello)]))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    async with httpx.AsyncClient() as http:
        assert (await http.get(server.url)).text == "hello"
        with pytest.raises(Unavailable, match="cannot be had"):
            await serve(Starlette(), port=int(server.url.rpartition(":")[2]))
        await server.stop()
        await server.stop()
        with pytest.raises(httpx.ConnectError):
            await http.get(server.url)


async def test_abort_answers_nobody() -> None:
    entered = asyncio.Event()

    async def hang(_request: Request) -> PlainTextResponse:
        entered.set()
        await asyncio.Event().wait()
        return PlainTextResponse("never")

    server = await serve(Starlette(routes=[Route("/", hang)]))
    async with httpx.AsyncClient() as http:
        asking = asyncio.create_task(http.get(server.url))
        await entered.wait()
        await server.abort()
        with pytest.raises(httpx.TransportError):
            await asking


async def test_an_application_that_does_not_start_is_an_error_and_not_the_end_of_the_process() -> None:
    @asynccontextmanager
    async def broken(_app: Starlette) -> AsyncIterator[None]:
        raise RuntimeError("no")
        yield

    with pytest.raises(Unavailable, match="did not start"):
        await serve(Starlette(lifespan=broken))
