"""Fixtures of every test: real servers. And what makes `pytest` long: proof by force, which has a mark of its own."""

from pathlib import Path
from typing import Final

import pytest

pytest_plugins = ["tests.support.postgres", "tests.support.nats"]

FORCE: Final = (
    "chaos",
    "force",
    "service/test_host_replicas.py",
    "service/test_recovery.py",
    "service/test_recovery_disk.py",
)
"""Folders and files whose tests kill processes, take servers away and fill disks, for minutes: `just force`.

Those that a plain run plays as well are marked `force_short`, each where it stands.
"""

_HERE: Final = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--outage",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long recovery tests keep a server away, at least",
    )


@pytest.fixture
def outage_seconds(request: pytest.FixtureRequest) -> float:
    """How long a server is to be away, at least. With 0, as long as it takes everybody to notice."""
    seconds: float = request.config.getoption("outage")
    return seconds


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(_HERE).as_posix().startswith(FORCE):
            item.add_marker(pytest.mark.force)
