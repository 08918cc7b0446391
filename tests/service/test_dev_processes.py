"""`minutebook dev --processes`: seven children that are found by what they answer, whatever they log."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from services.host.roster import ORDER
from tests.support.stack import Dev, eventually, forget


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    data_dir = tmp_path / "data"
    try:
        with Dev.start(data_dir, "--processes", MINUTEBOOK_LOG_LEVEL="error") as dev:
            yield dev
    finally:
        forget(data_dir)


def test_quiet_processes_are_found_and_started_again(dev: Dev) -> None:
    assert dev.file["processes"].keys() == set(ORDER)
    for name, process in dev.file["processes"].items():
        assert httpx.get(process["ops_url"] + "/readyz").json()["services"].keys() == {name}
    me = dev.get("/me")

    before = dev.file["processes"]["api"]["pid"]
    psutil.Process(before).kill()

    def another() -> bool:
        return bool(json.loads((dev.data_dir / "dev.json").read_text())["processes"]["api"]["pid"] != before)

    eventually("another api", another)
    assert dev.get("/me") == me, "it is at the same address"
