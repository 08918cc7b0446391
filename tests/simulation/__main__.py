"""`python -m tests.simulation`: plays seeds, and tells how to play a failing one again."""

import argparse
import os
import sys
from collections.abc import Sequence

_HASH_SEED = "0"


def main(arguments: Sequence[str]) -> int:
    """Play what is asked for; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="play this seed alone and print its trace")
    parser.add_argument("--without", help="play without this guard of the design; `list` names them")
    parser.add_argument(
        "--teeth",
        action="store_true",
        help="play without each guard (or those of `--without`, by commas)",
    )
    parser.add_argument("--twice", action="store_true", help="play each seed twice and compare")
    parser.add_argument("--fingerprints", action="store_true", help="print the fingerprint of each seed")
    parser.add_argument("--trace", type=int, default=60, help="how much of a failing seed's trace to print, in lines")
    parser.add_argument("--seconds", type=float, help="stop after this long, whatever is left")
    asked = parser.parse_args(arguments)
    from tests.simulation import report, teeth

    if asked.teeth:
        return report.teeth(asked.seeds, asked.without.split(",") if asked.without else teeth.GUARDS)
    if asked.without == "list":
        return report.guards()
    first, count = (asked.seed, 1) if asked.seed is not None else (asked.first, asked.seeds)
    lines = sys.maxsize if asked.seed is not None and asked.trace == 60 else asked.trace
    return report.seeds(
        first,
        count,
        without=asked.without,
        lines=lines,
        seconds=asked.seconds,
        twice=asked.twice,
        fingerprints=asked.fingerprints,
    )


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != _HASH_SEED:
        # The order in which sets of texts are walked is a choice like any other: it must come from the seed.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": _HASH_SEED},
        )
    sys.exit(main(sys.argv[1:]))
