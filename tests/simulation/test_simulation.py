"""A short form of the simulation, in a process of its own so that its choices come from the seed alone."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=240)


def test_every_promise_holds_on_the_first_seeds() -> None:
    played = simulate("--seeds", "500", "--seconds", "12")

    assert played.returncode == 0, played.stdout[-6_000:] + played.stderr[-2_000:]
    assert "every promise held" in played.stdout


def test_guards_that_are_taken_away_are_missed() -> None:
    """A few, to keep the way to it working; `just sim-teeth` takes each guard away in turn."""
    played = simulate("--teeth", "--seeds", "60", "--without", "derived_ids,answered_once,doubt_is_doubt,outbox_sweep")

    assert played.returncode == 0, played.stdout[-4_000:] + played.stderr[-2_000:]
    told = dict(line.split(": seed ") for line in played.stdout.splitlines())
    assert set(told) == {"derived_ids", "answered_once", "doubt_is_doubt", "outbox_sweep"}
    assert "one event was recorded twice" in told["derived_ids"]
    assert "answered -> answered" in told["answered_once"]
    assert "recorded as failed" in told["doubt_is_doubt"]
    assert "stuck" in told["outbox_sweep"]


def test_a_seed_plays_the_same_again() -> None:
    played = simulate("--seeds", "5", "--twice")

    assert played.returncode == 0, played.stdout[-4_000:] + played.stderr[-2_000:]


def test_a_seed_plays_the_same_alone_as_in_a_series() -> None:
    """What one seed leaves behind in the process is nothing to the next one."""
    series = simulate("--first", "5", "--seeds", "10", "--fingerprints").stdout.splitlines()
    alone = simulate("--seed", "14", "--fingerprints").stdout.splitlines()

    assert [line for line in series if line.startswith("seed 14:")] == [alone[0]]
