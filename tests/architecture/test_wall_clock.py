"""Nobody judges by the wall clock of their own process: replicas whose clocks differ by a minute agree all the same.

Deadlines, leases, ends of keys and wakes are compared with the database's clock; how long something took is the
monotonic clock's to say.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.stack import ROOT

READS: Final = frozenset(
    {"datetime.now", "datetime.utcnow", "datetime.today", "date.today", "time.time", "time.time_ns"}
)
ALLOWED: Final = {
    "services/effects/notices/ways.py": "a signed webhook says when it was sent, to receivers with clocks of their own",
    "services/dev": "stands for the outside: a target and a model of its own, with clocks of their own",
}
"""Folders and files that may, and why."""


def test_no_service_reads_the_wall_clock() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for folder in ("contracts", "libs", "services")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not path.relative_to(ROOT).as_posix().startswith(tuple(ALLOWED))
        for line, name in _reads(path)
    ]
    assert found == []


def _reads(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = ".".join(ast.unparse(node.func).split(".")[-2:])
            if name in READS:
                yield node.lineno, name
