"""`python -m tests.guards`: takes each guard away in a copy of the sources and runs the tests that must miss it.

Prints a table; exit code 1 where a test passes without its guard, or fails with it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.guards.guards import GUARDS, Guard

ROOT: Final = Path(__file__).parents[2]
COPIED: Final = ("contracts", "libs", "services", "tests", "definitions", "pyproject.toml")
SECONDS_MAX: Final = 300
PASSED: Final = 0
FAILED: Final = 1
"""Of pytest's exit codes the only one that says that tests ran and failed; others are mistakes of the list."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.guards", description=__doc__)
    parser.add_argument("only", nargs="*", help="words of sentences; without any, all guards")
    only = parser.parse_args().only
    chosen = [guard for guard in GUARDS if not only or any(word in guard.sentence for word in only)]
    with tempfile.TemporaryDirectory(prefix="guards-") as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, copy / name)
        wrong = _whole(copy, chosen) + sum(not _missed(copy, guard) for guard in chosen)
    _say(f"{'FAILED' if wrong else 'passed'}: {len(chosen)} guards, {wrong} wrong")
    sys.exit(1 if wrong else 0)


def _whole(copy: Path, guards: Sequence[Guard]) -> int:
    """Run every test with its guard in place: all must pass."""
    tests = sorted({test for guard in guards for test in guard.tests})
    code, output, seconds = _run(copy, tests)
    _say(f"{'ok' if code == PASSED else 'WRONG':<6} {seconds:5.1f} s  nothing taken away, {len(tests)} tests pass")
    if code != PASSED:
        _say(output)
    return int(code != PASSED)


def _missed(copy: Path, guard: Guard) -> bool:
    """Take a guard away, see each of its tests fail, and put it back."""
    originals = {change.file: (copy / change.file).read_text() for change in guard.changes}
    try:
        for change in guard.changes:
            source = (copy / change.file).read_text()
            assert source.count(change.text) == 1, f"{change.file} does not hold once: {change.text}"
            (copy / change.file).write_text(source.replace(change.text, change.instead))
        results = [(test, *_run(copy, [test])) for test in guard.tests]
    finally:
        for file, source in originals.items():
            (copy / file).write_text(source)
    missed = all(code == FAILED for _, code, _, _ in results)
    _say(f"{'ok' if missed else 'WRONG':<6} {sum(r[3] for r in results):5.1f} s  {guard.sentence}")
    for test, code, output, _ in results:
        if code != FAILED:
            _say(f"       {test} ended with {code} without it\n{output}")
    return missed


def _run(copy: Path, tests: Sequence[str]) -> tuple[int, str, float]:
    """Run tests on the copy; returns pytest's exit code, the end of what it said, and the seconds it took."""
    # The copy comes first on the path, before the checkout that is installed; no bytecode, which is kept by the second.
    paths = os.pathsep.join([str(copy), str(copy / "libs/sdk/src")])
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-n", "0", "-x", "-m", "force or not force", *tests],
            cwd=copy,
            env=env,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return FAILED, f"did not end within {SECONDS_MAX} s", time.monotonic() - began
    return done.returncode, done.stdout[-1500:], time.monotonic() - began


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
