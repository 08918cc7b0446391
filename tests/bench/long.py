"""Long runs: what a step costs late in one beside early, and what it takes to look at it."""

import time
from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from statistics import median
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from tests.bench.definitions import ITEMS, ITEMS_CONTEXT, LONG, LOOP, LOOP_STEPS
from tests.bench.http import Connection
from tests.bench.load import start, until
from tests.bench.product import Product

LOOKS: Final = 20
STEPS_COMPARED: Final = 50

_STEPS_QUEUED: Final = """
select recorded_at from workflow_history where stream_id = $1 and type = 'run.step_queued' order by version"""


async def many_steps(product: Product) -> dict[str, float]:
    """One run of a definition of 200 steps."""
    return await _grown(product, LONG, compared=STEPS_COMPARED)


async def many_facts(product: Product) -> dict[str, float]:
    """One run that is sent back twenty times over 120 steps, to 5,000 facts."""
    return await _grown(product, LOOP, compared=LOOP_STEPS)


async def many_items(product: Product) -> dict[str, float]:
    """One run with a step for each of 500 items, 50 of them at a time: they are planned together, so none is timed."""
    return await _grown(product, ITEMS, context=ITEMS_CONTEXT)


async def _grown(
    product: Product, definition: str, *, compared: int = 0, context: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, float]:
    """Let a run come to rest, and look at it. `compared` steps at its beginning and at its end are timed."""
    async with product.connection() as connection:
        began = time.perf_counter()
        run_id = UUID((await start(connection, definition, wait=0, **context))["run_id"])

        async def rests() -> bool:
            state = await product.database.fetchval("select state from run_heads where stream_id = $1", run_id)
            return state not in {"created", "running"}

        await until(rests)
        seconds = time.perf_counter() - began
        facts = await product.database.fetchval("select version from run_heads where stream_id = $1", run_id)
        figures = {"seconds": seconds, "facts": facts}
        if compared:
            steps = await _steps_ms(product, run_id)
            figures |= {"step_early_ms": median(steps[:compared]), "step_late_ms": median(steps[-compared:])}
        return figures | await _looked_at(connection, run_id)


async def _steps_ms(product: Product, run_id: UUID) -> list[float]:
    """From each step's being queued to the next one's, as the record has it."""
    queued = [row["recorded_at"] for row in await product.database.fetch(_STEPS_QUEUED, run_id)]
    return [(after - before).total_seconds() * 1e3 for before, after in pairwise(queued)]


async def _looked_at(connection: Connection, run_id: UUID) -> dict[str, float]:
    began, cursor = time.perf_counter(), ""
    while cursor is not None:
        path = f"/runs/{run_id}/history?limit=200" + (f"&cursor={cursor}" if cursor else "")
        cursor = (await connection.call("GET", path))["next_cursor"]
    whole = time.perf_counter() - began
    return {
        "show_ms": await _median_ms(lambda: connection.call("GET", f"/runs/{run_id}")),
        "list_ms": await _median_ms(lambda: connection.call("GET", "/runs?limit=50")),
        "history_first_page_ms": await _median_ms(lambda: connection.call("GET", f"/runs/{run_id}/history")),
        "history_all_pages_ms": whole * 1e3,
    }


async def _median_ms(look: Callable[[], Awaitable[Any]]) -> float:
    times = []
    for _ in range(LOOKS):
        began = time.perf_counter()
        await look()
        times.append((time.perf_counter() - began) * 1e3)
    return median(times)
