"""`python -m tests.bench`: takes the measurements and tells them."""

import argparse
import asyncio
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console

from libs.telemetry import logs
from tests.bench import report
from tests.bench.meter import Meter, disk_probe, python_probe
from tests.bench.product import product
from tests.bench.scenarios import QUICK, Scenario, Sizes, scenarios, warm_up


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--out", type=Path, help="write the records as JSON to this file")
    parser.add_argument("--quick", action="store_true", help="less of everything, in about three minutes")
    parser.add_argument("--only", help="names of measurements, with commas between, such as S1,S2")
    options = parser.parse_args()
    wanted = scenarios(QUICK if options.quick else Sizes())
    if options.only:
        names = set(options.only.split(","))
        wanted = [scenario for scenario in wanted if names & {scenario.name, scenario.name.partition("-")[0]}]
    logs.configure("bench", level="error")
    console = Console(highlight=False, width=150)
    disk_ms = disk_probe()
    console.print(f"a write with fdatasync takes {disk_ms} ms here", style="dim")
    python_ms = python_probe()
    console.print(f"the same piece of Python takes {python_ms} ms here", style="dim")
    records = asyncio.run(take(wanted, console))
    report.show(console, records)
    if options.out is not None:
        report.write(options.out, records, disk_ms=disk_ms, python_ms=python_ms)


async def take(wanted: Sequence[Scenario], console: Console) -> list[report.Record]:
    """Take the measurements, those with the same settings on one product."""
    records = []
    for settings, group in groupby(wanted, key=lambda scenario: dict(scenario.settings)):
        async with product(settings) as running:
            await warm_up(running)
            for scenario in group:
                console.print(f"{scenario.name}: {scenario.title} …", style="dim")
                async with Meter(running.database) as meter:
                    figures = await scenario.measure(running)
                records.append(
                    report.Record(scenario.name, scenario.title, scenario.runs, figures, meter.cost, settings)
                )
    return records


if __name__ == "__main__":
    main()
