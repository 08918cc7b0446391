"""The measurements. Each answers figures; what they cost is metered round them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tests.bench import long
from tests.bench.definitions import DECISION, SLOW, SLOW_CONTEXT, STEPS
from tests.bench.http import Connection
from tests.bench.load import BATCH, connected, share_out, start, start_batch, until, until_none_moves
from tests.bench.meter import Meter
from tests.bench.product import Product

IN_FLIGHT: Final = 64
WARM_RUNS: Final = 300
PARK_BATCH: Final = 500
IDLE_SECONDS: Final = 10.0

Figures = dict[str, float]
Measure = Callable[[Product], Awaitable[Figures]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of each: `--quick` takes less."""

    throughput_runs: int = 2_000
    single_runs: int = 200
    decisions: int = 200
    parked: Sequence[int] = (2_000, 20_000, 100_000)
    slow_runs: int = 200
    slow_slots: int = 50


QUICK: Final = Sizes(
    throughput_runs=1_000, single_runs=100, decisions=100, parked=(2_000,), slow_runs=60, slow_slots=20
)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One line of the report. `runs` is what costs are divided by; scenarios with the same settings share a product."""

    name: str
    title: str
    runs: int
    measure: Measure
    settings: Mapping[str, str]


def scenarios(sizes: Sizes) -> list[Scenario]:
    """Every measurement, in the order in which they are taken."""
    steps, single = sizes.throughput_runs, sizes.single_runs
    common: Mapping[str, str] = {}
    # A lease is as short as it can sensibly be: what is measured is taking over, not waiting for 90 s.
    taking_over = {
        "MINUTEBOOK_RUNNER_SLOTS": str(sizes.slow_slots),
        "MINUTEBOOK_RUNNER_LEASE_SECONDS": "3",
        "MINUTEBOOK_RUNNER_RENEW_SECONDS": "1",
    }
    listed = [
        Scenario("S1", f"{IN_FLIGHT} in flight", steps, partial(in_flight, runs=steps), common),
        Scenario("S1b", "batch start", steps, partial(in_batches, runs=steps), common),
        Scenario("S1f", "all started first", steps, partial(started_first, runs=steps), common),
        Scenario("S2", "one run after another", single, partial(singly, runs=single), common),
        Scenario("S3", "answer to done", sizes.decisions, partial(answered, runs=sizes.decisions), common),
    ]
    for parked in sizes.parked:
        title = f"one after another, {parked:,} parked"
        listed.append(
            Scenario(f"S3p-{parked}", title, single, partial(beside_parked, parked=parked, runs=single), common)
        )
    listed += [
        Scenario("L-steps", "one run of 200 steps", 1, long.many_steps, common),
        Scenario("L-facts", "one run of 5,000 facts", 1, long.many_facts, common),
        Scenario("L-items", "one run of 500 items", 1, long.many_items, common),
    ]
    slow = partial(taken_over, runs=sizes.slow_runs)
    listed.append(Scenario("S4", f"kill -9, {sizes.slow_slots} slots", sizes.slow_runs, slow, taking_over))
    return listed


async def warm_up(product: Product) -> None:
    """Have every process, plan and cache as it is after a minute of work."""
    async with connected(product, IN_FLIGHT) as connections:
        await share_out(connections, range(WARM_RUNS), lambda connection, _: start(connection, STEPS))
        await share_out(connections, range(IN_FLIGHT), lambda connection, _: _decide(connection))
    await start_in_batches(product, STEPS, 2 * BATCH, batch=BATCH)
    await until_none_moves(product, STEPS)


async def in_flight(product: Product, *, runs: int) -> Figures:
    async with connected(product, IN_FLIGHT) as connections:
        began = time.perf_counter()
        times = await share_out(connections, range(runs), lambda connection, _: start(connection, STEPS))
        seconds = time.perf_counter() - began
    return {"runs_per_second": runs / seconds, **percentiles(times)}


async def in_batches(product: Product, *, runs: int) -> Figures:
    began = time.perf_counter()
    await start_in_batches(product, STEPS, runs, batch=BATCH)
    started = time.perf_counter()
    await until_none_moves(product, STEPS)
    return {"runs_per_second": runs / (time.perf_counter() - began), "started_per_second": runs / (started - began)}


async def started_first(product: Product, *, runs: int) -> Figures:
    began = time.perf_counter()
    async with connected(product, IN_FLIGHT) as connections:
        await share_out(connections, range(runs), lambda connection, _: start(connection, STEPS, wait=0))
    started = time.perf_counter()
    await until_none_moves(product, STEPS)
    return {"runs_per_second": runs / (time.perf_counter() - began), "started_per_second": runs / (started - began)}


async def singly(product: Product, *, runs: int) -> Figures:
    async with product.connection() as connection:
        return percentiles(await share_out([connection], range(runs), lambda to, _: start(to, STEPS)))


async def answered(product: Product, *, runs: int) -> Figures:
    async with product.connection() as connection:
        return percentiles([await _decide(connection) for _ in range(runs)])


async def beside_parked(product: Product, *, parked: int, runs: int) -> Figures:
    """Park runs until there are as many, look at the product when it has nothing to do, then start single ones."""
    there = await product.database.fetchval("select count(*) from run_heads where state = 'waiting_decision'")
    before = await _database_bytes(product)
    await start_in_batches(product, DECISION, parked - there, batch=PARK_BATCH)
    figures = {"bytes_per_parked_run": (await _database_bytes(product) - before) / (parked - there)}
    await product.database.execute("vacuum analyze")
    await product.database.execute("checkpoint")
    figures["idle_cpu_share"] = await _idle(product)
    return figures | await singly(product, runs=runs)


async def taken_over(product: Product, *, runs: int) -> Figures:
    """Kill the runner when half of the steps have ended; then read in the record what was done how often."""
    began = time.perf_counter()
    async with connected(product, IN_FLIGHT) as connections:
        await share_out(connections, range(runs), lambda to, _: start(to, SLOW, wait=0, **SLOW_CONTEXT))

        async def half_done() -> bool:
            return await _ended(product) >= runs / 2

        await until(half_done)
        killed = time.perf_counter()
        product.kill("runner")
        await until_none_moves(product, SLOW)
    done = time.perf_counter()
    twice, again = await product.database.fetchrow(_DONE_HOW_OFTEN)
    return {
        "seconds": done - began,
        "seconds_after_kill": done - killed,
        "begun_twice": twice,
        "finished_run_again": again,
        "completed": await _ended(product),
    }


_DONE_HOW_OFTEN: Final = """
select count(*) filter (where started > 1) as twice,
       count(*) filter (where begun_after_end or ended > 1) as again from (
  select count(*) filter (where type = 'attempt.started') as started,
         count(*) filter (where type = 'attempt.succeeded') as ended,
         coalesce(max(version) filter (where type = 'attempt.started')
                  > min(version) filter (where type = 'attempt.succeeded'), false) as begun_after_end
    from workflow_history where category = 'attempt' group by stream_id) attempts"""


async def _ended(product: Product) -> int:
    rows: int = await product.database.fetchval(
        "select count(*) from run_heads where definition_id = $1 and state = 'completed'", SLOW
    )
    return rows


async def _decide(connection: Connection) -> float:
    """Have a run wait for a decision, answer it, and return the seconds from the answer to the run's end."""
    run = await start(connection, DECISION)
    view = await connection.call("GET", f"/runs/{run['run_id']}")
    decision = view["waiting_for"][0]["decision_id"]
    began = time.perf_counter()
    await connection.call("POST", f"/decisions/{decision}/approve", {})
    view = await connection.call("GET", f"/runs/{run['run_id']}?wait=60")
    seconds = time.perf_counter() - began
    assert view["state"] == "completed", view["state"]
    return seconds


async def start_in_batches(product: Product, definition: str, runs: int, *, batch: int) -> None:
    sizes = [min(batch, runs - begun) for begun in range(0, runs, batch)]

    async def begin(connection: Connection, size: int) -> Any:
        return await start_batch(connection, definition, size)

    async with connected(product, 4) as connections:
        await share_out(connections, sizes, begin)


async def _database_bytes(product: Product) -> int:
    size: int = await product.database.fetchval("select pg_database_size(current_database())")
    return size


async def _idle(product: Product) -> float:
    """The share of one CPU that the product takes when nothing is asked of it."""
    await asyncio.sleep(IDLE_SECONDS / 2)
    async with Meter(product.database) as meter:
        await asyncio.sleep(IDLE_SECONDS)
    return sum(meter.cost.cpu_seconds.values()) / meter.cost.seconds


def percentiles(seconds: Sequence[float]) -> Figures:
    """p50, p95 and p99 in milliseconds."""
    ordered = sorted(seconds)
    return {
        f"p{wanted}_ms": ordered[min(len(ordered) * wanted // 100, len(ordered) - 1)] * 1e3 for wanted in (50, 95, 99)
    }
