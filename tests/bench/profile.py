"""`python -m tests.bench.profile`: where the time of one run goes, hop by hop, as its history has it.

Each fact says when it was decided (its statement's load) and when it was recorded (its append). The database's clock is
this machine's, so the caller's own times fit between them.
"""

import argparse
import asyncio
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from statistics import median
from typing import Any, Final

import asyncpg
from rich.console import Console
from rich.table import Table

from libs.telemetry import logs
from tests.bench.definitions import STEPS
from tests.bench.load import start
from tests.bench.meter import Meter
from tests.bench.product import Product, product
from tests.bench.scenarios import warm_up

RUNS: Final = 100

HOPS: Final = (
    "caller → start decided: HTTP in, ask, definition, load",
    "start decided → recorded: plan, append",
    "queued → claimed and loaded: publish, bell, claim, load",
    "begin decided → recorded: append",
    "begun → result decided: request, execute, report, load",
    "result decided → recorded: append",
    "result → plan decided: publish, delivery, load, evidence",
    "plan decided → recorded: plan, append",
    "end recorded → caller: publish, HTTP out",
)

_FACTS: Final = """
select type, (payload->>'at')::timestamptz as decided, recorded_at as recorded from workflow_history
 where metadata->>'correlation' = $1 order by era, xid, position"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profile", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args()
    logs.configure("profile", level="error")
    asyncio.run(_profile(options.runs))


async def _profile(runs: int) -> None:
    async with product() as running:
        await warm_up(running)
        spent: defaultdict[str, list[float]] = defaultdict(list)
        async with Meter(running.database) as meter:
            asked = [await _one(running) for _ in range(runs)]
        for called, run_id, answered in asked:
            facts = await running.database.fetch(_FACTS, run_id)
            for hop, seconds in _hops(called, facts, answered).items():
                spent[hop].append(seconds)
    table = Table("hop", "ms", "share", box=None, pad_edge=False)
    totals = {hop: median(spent[hop]) for hop in HOPS}
    for hop, seconds in totals.items():
        table.add_row(hop, f"{seconds * 1e3:.2f}", f"{seconds / sum(totals.values()):.0%}")
    console = Console(highlight=False, width=110)
    console.print(table)
    console.print(
        f"{sum(totals.values()) * 1e3:.1f} ms a run of three steps, the sum of medians of {runs} runs; "
        f"others used {meter.cost.other_cpu_share:.2f} of the machine"
    )


async def _one(running: Product) -> tuple[datetime, str, datetime]:
    async with running.connection() as connection:
        called = datetime.now(UTC)
        run = await start(connection, STEPS)
        return called, run["run_id"], datetime.now(UTC)


def _hops(called: datetime, facts: list[asyncpg.Record], answered: datetime) -> Mapping[str, float]:
    """Seconds per kind of hop in one run; those that each step has are added up."""
    spent = dict.fromkeys(HOPS, 0.0)

    def add(hop: int, begun: datetime, ended: datetime) -> None:
        spent[HOPS[hop]] += (ended - begun).total_seconds()

    previous: Any = {"type": None, "decided": called, "recorded": called}
    for fact in facts:
        match fact["type"]:
            case "run.created":
                between, append = 0, 1
            case "attempt.started":
                between, append = 2, 3
            case "attempt.succeeded":
                between, append = 4, 5
            case "run.step_succeeded":
                between, append = 6, 7
            case _:
                continue
        add(between, previous["recorded"], fact["decided"])
        add(append, fact["decided"], fact["recorded"])
        previous = fact
    add(8, previous["recorded"], answered)
    return spent


if __name__ == "__main__":
    main()
