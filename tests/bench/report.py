"""Records of measurements, as a file for machines and a table for people."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench.meter import Cost


@dataclass(frozen=True, slots=True)
class Record:
    """One measurement: its figures and what it cost."""

    name: str
    title: str
    runs: int
    figures: dict[str, float]
    cost: Cost
    settings: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "runs": self.runs,
            "figures": {name: round(value, 3) for name, value in self.figures.items()},
            "cost": {
                **asdict(self.cost),
                "noisy": self.cost.noisy,
                "commits_per_run": round(self.cost.commits / self.runs, 3),
                "wal_bytes_per_run": round(self.cost.wal_bytes / self.runs),
                "cpu_seconds_per_1000_runs": {
                    name: round(seconds / self.runs * 1_000, 3) for name, seconds in self.cost.cpu_seconds.items()
                },
            },
            "settings": self.settings,
        }


def write(path: Path, records: Sequence[Record], *, disk_ms: float, python_ms: float) -> None:
    """Write all records with what they were taken on."""
    machine = {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "fdatasync_ms": disk_ms,
        "python_probe_ms": python_ms,
    }
    path.write_text(json.dumps({"machine": machine, "records": [r.as_json() for r in records]}, indent=2) + "\n")


def show(console: Console, records: Sequence[Record]) -> None:
    """Print a line per record."""
    table = Table(box=None, pad_edge=False)
    for column in ("", "MEASUREMENT", "FIGURES", "CPU ms/run", "COMMITS/run", "WAL/run", "OTHERS"):
        table.add_column(column, overflow="fold")
    for record in records:
        cost = record.cost
        cpu = "  ".join(
            f"{name} {seconds / record.runs * 1e3:.2f}"
            for name, seconds in sorted(cost.cpu_seconds.items(), key=lambda item: -item[1])
            if seconds / record.runs >= 1e-5
        )
        table.add_row(
            record.name,
            record.title,
            "\n".join(f"{name} {value:,.2f}" for name, value in record.figures.items()),
            cpu,
            f"{cost.commits / record.runs:.2f}",
            f"{cost.wal_bytes / record.runs:,.0f}",
            f"{cost.other_cpu_share:.2f}{' noisy' if cost.noisy else ''}",
        )
    console.print(table)
