"""What callers do, and how long it takes them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Any, Final

from tests.bench.http import Connection
from tests.bench.product import Product

BATCH: Final = 100
WAIT_SECONDS: Final = 60
_POLL_SECONDS: Final = 0.02

_numbers = count(1)


def context(**more: Any) -> dict[str, Any]:
    """A run's context: as small as a start may be."""
    return {"number": next(_numbers), **more}


async def start(connection: Connection, definition: str, *, wait: int = WAIT_SECONDS, **more: Any) -> Any:
    """Start a run and wait for it to come to rest, unless `wait` is 0."""
    query = f"?wait={wait}" if wait else ""
    return await connection.call("POST", f"/definitions/{definition}/runs{query}", {"context": context(**more)})


async def start_batch(connection: Connection, definition: str, size: int) -> list[str]:
    """Start runs by one request and return their ids."""
    items = [{"context": context()} for _ in range(size)]
    answer = await connection.call("POST", f"/definitions/{definition}/runs:batch", {"items": items})
    return [item["run"]["run_id"] for item in answer["items"]]


@asynccontextmanager
async def connected(product: Product, connections: int) -> AsyncIterator[list[Connection]]:
    async with AsyncExitStack() as opened:
        yield [await opened.enter_async_context(product.connection()) for _ in range(connections)]


async def share_out(
    connections: Sequence[Connection], pieces: Sequence[Any], do: Callable[[Connection, Any], Awaitable[Any]]
) -> list[float]:
    """Have every piece done, each connection one at a time; returns the seconds that each took."""
    todo: Iterator[Any] = iter(pieces)
    times: list[float] = []

    async def work(connection: Connection) -> None:
        for piece in todo:
            began = time.perf_counter()
            await do(connection, piece)
            times.append(time.perf_counter() - began)

    async with asyncio.TaskGroup() as group:
        for connection in connections:
            group.create_task(work(connection))
    return times


async def until_none_moves(product: Product, definition: str) -> None:
    """Return when no run of a definition is created or running any more."""
    path = f"/runs?definition={definition}&state=created&state=running&limit=1"
    async with product.connection() as connection:

        async def none_moves() -> bool:
            return not (await connection.call("GET", path))["items"]

        await until(none_moves)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask again until it holds."""
    while not await holds():  # noqa: ASYNC110 - it is asked over HTTP or SQL, which ring no bell
        await asyncio.sleep(_POLL_SECONDS)
