"""Plays many seeds and prints what came of them."""

import sys
import time
from collections import Counter
from collections.abc import Collection
from contextlib import nullcontext

from tests.simulation.simulate import Played, play
from tests.simulation.teeth import GUARDS


def seeds(
    first: int,
    count: int,
    *,
    without: str | None,
    lines: int,
    seconds: float | None = None,
    twice: bool = False,
    fingerprints: bool = False,
) -> int:
    """Play seeds until one fails. The exit code."""
    began = time.perf_counter()
    steps = facts = played = 0
    virtual = 0.0
    faults: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    with GUARDS[without].removed() if without else nullcontext():
        for seed in range(first, first + count):
            if seconds is not None and time.perf_counter() - began > seconds:
                break
            result = play(seed)
            played += 1
            steps, facts, virtual = steps + result.steps, facts + result.facts, virtual + result.seconds
            faults += result.faults
            runs += result.runs
            if fingerprints:
                _say(f"seed {seed}: {result.fingerprint}")
            if twice and play(seed).fingerprint != result.fingerprint:
                _say(f"seed {seed} played differently the second time")
                return 1
            if result.violation is not None:
                _tell(result, without=without, lines=lines)
                return 1
    took = time.perf_counter() - began
    _say(f"{played} seeds, {steps:,} steps, {facts:,} facts, {virtual / 3600:.1f} virtual hours in {took:.1f} s")
    _say(f"{steps / took:,.0f} steps/s; every promise held")
    _say("runs: " + ", ".join(f"{state} {number}" for state, number in sorted(runs.items())))
    _say("faults: " + ", ".join(f"{kind} {number}" for kind, number in sorted(faults.items())))
    return 0


def teeth(most: int, names: Collection[str]) -> int:
    """Remove each of these guards in turn; tell which seed found it. 1 when one was not missed."""
    missed = 0
    for name, guard in GUARDS.items():
        if name not in names:
            continue
        began = time.perf_counter()
        with guard.removed():
            found = next((result for seed in range(1, most + 1) if (result := play(seed)).violation), None)
        took = time.perf_counter() - began
        if found is None:
            missed += 1
            _say(f"{name}: NOT MISSED in {most} seeds ({took:.1f} s)")
        else:
            _say(f"{name}: seed {found.seed} ({took:.1f} s): {(found.violation or '')[:160]}")
    return int(missed > 0)


def guards() -> int:
    """Name the guards that can be removed."""
    for name, guard in GUARDS.items():
        _say(f"{name}: {guard.promise}")
    return 0


def _tell(result: Played, *, without: str | None, lines: int) -> None:
    for seconds, who, what in result.trace[-lines:]:
        _say(f"{seconds:10.3f}  {who:14} {what}")
    _say(f"seed {result.seed}: {result.violation}")
    again = f"python -m tests.simulation --seed {result.seed}" + (f" --without {without}" if without else "")
    _say(f"again, with its whole trace: {again}")


def _say(line: str) -> None:
    print(line, file=sys.stdout, flush=True)  # noqa: T201
