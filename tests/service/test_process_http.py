"""The in-process HTTP server: whose port it is, what its address says, and how it ends."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from contracts.errors import Unavailable
from libs.process.bounded import HEAD_BYTES_MAX
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


LONG: Final = b"a" * (HEAD_BYTES_MAX + 1)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + LONG + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nx-long: " + LONG + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x-many: 1234567890\r\n" * 4_000 + b"\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nx-endless: " + LONG * 5,
        b"GET /" + LONG * 5,
    ],
    ids=["path", "header", "headers", "a header without an end", "a path without an end"],
)
async def test_a_head_without_bounds_is_refused(head: bytes) -> None:
    """Of a request that has not begun to be one, no more is kept than the head of any request may have."""
    running = await serve(Starlette(), listen("127.0.0.1", 0), drain=DRAIN)
    host, port = running.url.removeprefix("http://").split(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head)
        answer = await reader.readuntil(b"\r\n")
        writer.close()
        assert answer.startswith(b"HTTP/1.1 400 ")
    finally:
        await running.stop()


async def test_a_head_within_bounds_is_read_and_so_is_the_next_one() -> None:
    async def length(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(request.headers.get("x-long", ""))))

    running = await serve(Starlette(routes=[Route("/", length)]), listen("127.0.0.1", 0), drain=DRAIN)
    try:
        async with httpx.AsyncClient() as http:
            for long in (HEAD_BYTES_MAX - 1_000, 10, HEAD_BYTES_MAX - 1_000):
                answer = await http.get(running.url, headers={"x-long": "a" * long})
                assert answer.text == str(long)
    finally:
        await running.stop()
