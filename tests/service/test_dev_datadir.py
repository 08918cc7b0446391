"""The data directory: one run at a time, kept secrets, and nobody else's files."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.errors import Rejected
from services.dev.datadir import DataDir, read_state

ROOT = Path(__file__).parents[2]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_made_private_and_found_again(tmp_path: Path) -> None:
    path = tmp_path / "deep/stack"
    with DataDir.open(path) as data:
        assert mode(path) == 0o700
        secret = data.secret("webhook")
        assert len(secret) >= 43
        assert data.secret("webhook") == secret != data.secret("token of somebody")
        data.write_state({"api_url": "http://127.0.0.1:1", "tokens": {"ada@example.com": "t"}})
        assert mode(path / "dev.json") == mode(path / "secrets.json") == 0o600
    with DataDir.open(path) as data:
        assert data.secret("webhook") == secret
        assert data.read_state() == read_state(path) == json.loads((path / "dev.json").read_text())
        data.clear_state()
        data.clear_state()
        assert read_state(path) == {}


def test_a_second_run_is_told_who_has_it(tmp_path: Path) -> None:
    code = "import sys, pathlib; from services.dev.datadir import DataDir as D; d = D.open(pathlib.Path(sys.argv[1]))"
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}; print('held', flush=True); sys.stdin.read()", tmp_path / "stack"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        for reset in (False, True):
            with pytest.raises(Rejected) as caught:
                DataDir.open(tmp_path / "stack", reset=reset)
            assert caught.value.status == 409
            assert f"in use by pid {other.pid}" in caught.value.message
            assert "--data-dir" in caught.value.message
        other.kill()
    DataDir.open(tmp_path / "stack").close()


def test_reset_removes_what_is_ours_and_nothing_else(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    for reset in (False, True):
        with pytest.raises(Rejected) as caught:
            DataDir.open(precious, reset=reset)
        assert caught.value.code == "data_dir.not_ours"
    assert [entry.name for entry in precious.iterdir()] == ["thesis.txt"]

    ours = tmp_path / "ours"
    with DataDir.open(ours) as data:
        secret = data.secret("webhook")
        (ours / "nats/jetstream").mkdir(parents=True)
        (ours / "link").symlink_to(precious)
    with DataDir.open(ours, reset=True) as data:
        assert {entry.name for entry in ours.iterdir()} == {"lock", "minutebook-data-dir"}
        assert data.secret("webhook") != secret
    assert (precious / "thesis.txt").exists()
