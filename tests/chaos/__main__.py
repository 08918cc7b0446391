"""`python -m tests.chaos`: both trials, a table of what was done and found, exit code 1 on any violation."""

import argparse
import asyncio
import logging
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import asyncpg
import psutil

from libs.postgres import migrate
from libs.postgres.pool import APP_ROLE
from tests.chaos.fleet import Fleet, open_fleet
from tests.chaos.ground import open_ground
from tests.chaos.judge import Findings
from tests.chaos.operator import settle_doubts
from tests.chaos.storm import SERVICES, storm
from tests.chaos.write_path import WRITING, write_path
from tests.support.fleet import own_nats, own_postgres
from tests.support.stack import children, gone

SHOWN_MAX: Final = 20


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="stories that are under way in the storm")
    parser.add_argument("--kills", type=int, default=500, help="kills on the write path of effects")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31), help="draws faults and answers")
    parser.add_argument("--keep", action="store_true", help="leave logs and the target's record behind")
    asked = parser.parse_args()
    # The target runs in this process, and tells at length of each caller that was killed in its call.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    _say(f"seed {asked.seed}")
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    for trial in ("storm", "write_path"):
        (folder / trial).mkdir()
    violations = asyncio.run(_trials(folder, runs=asked.runs, kills=asked.kills, seed=asked.seed))
    violations += _left_behind()
    for violation in violations[:SHOWN_MAX]:
        _say(f"VIOLATION: {violation}")
    if asked.keep or violations:
        _say(f"logs and the target's record are in {folder}")
    else:
        shutil.rmtree(folder)
    _say(f"{'FAILED' if violations else 'passed'}: {len(violations)} violations, seed {asked.seed}")
    sys.exit(1 if violations else 0)


async def _trials(folder: Path, *, runs: int, kills: int, seed: int) -> list[str]:
    """Each trial on servers and a record of its own."""
    violations: list[str] = []
    if runs:
        violations += await _storm(folder / "storm", runs=runs, seed=seed)
    if kills:
        violations += await _write_path(folder / "write_path", kills=kills, seed=seed)
    return violations


async def _storm(folder: Path, *, runs: int, seed: int) -> list[str]:
    async with own_postgres(folder) as postgres, own_nats(folder) as nats:
        owner, app = await _database(postgres.dsn)
        async with open_ground(app, owner, nats.url, folder) as ground, open_fleet(ground, SERVICES) as fleet:
            findings, faults = await storm(ground, fleet, postgres, nats, runs=runs, seed=seed, say=_say)
            await settle_doubts(ground, fleet, findings, expected=runs, say=_say)
        _report("storm", fleet, findings, faults.struck)
    return findings.violations


async def _write_path(folder: Path, *, kills: int, seed: int) -> list[str]:
    async with own_postgres(folder) as postgres, own_nats(folder) as nats:
        owner, app = await _database(postgres.dsn)
        async with open_ground(app, owner, nats.url, folder) as ground, open_fleet(ground, WRITING) as fleet:
            findings = await write_path(ground, fleet, kills=kills, seed=seed, say=_say)
        _report("write path", fleet, findings, {})
    return findings.violations


async def _database(dsn: Callable[[str, str], str]) -> tuple[str, str]:
    """Make a migrated database; returns how its owner and how services find it."""
    connection = await asyncpg.connect(dsn("postgres", "postgres"))
    try:
        await connection.execute("create database minutebook")
    finally:
        await connection.close()
    owner = dsn("minutebook", "postgres")
    await migrate(owner)
    return owner, dsn("minutebook", APP_ROLE)


def _left_behind() -> list[str]:
    """Every process below this one must end, but for those that forking itself needs."""
    try:
        gone([process for process in children(os.getpid()) if not _forks(process)])
    except AssertionError as error:
        return [f"left behind: {error}"]
    return []


def _forks(process: psutil.Process) -> bool:
    try:
        return any("multiprocessing" in part for part in process.cmdline())
    except psutil.Error:
        return False


def _report(trial: str, fleet: Fleet, findings: Findings, struck: Mapping[str, int]) -> None:
    _say(f"--- {trial} ---")
    rows: list[tuple[str, object]] = [*sorted(struck.items())]
    died = Counter(f"{death.service} killed: {death.how}" for death in fleet.deaths)
    rows += sorted(died.items())
    rows.append(("processes killed", died.total()))
    rows += [*sorted(findings.counts.items()), ("violations", len(findings.violations))]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        _say(f"  {name:<{width}}  {value}")


def _say(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
