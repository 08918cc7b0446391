"""How `minutebook dev` ends, and how it goes on: signals, kills, servers that die, folders and ports that are taken."""

import json
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.stack import DEFINITIONS, Dev, command, eventually, forget, gone, scripted_answers, story

DANA = "dana@example.com"

SLOW = """
workflow:
  id: slow
  name: A step that takes its time
  triggers:
    - { kind: manual, roles: [developer] }
  stages:
    - key: only
      steps:
        - { key: quick, kind: agent, prompt: prompts/step.md }
        - { key: slow, kind: agent, prompt: prompts/step.md }
"""


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """A data directory of which nothing is left anywhere afterwards."""
    yield tmp_path / "data"
    forget(tmp_path / "data")


def slow_definitions(folder: Path, *, seconds: float) -> Path:
    """The shipped definitions, and one with a step that takes so long."""
    slow = folder / "workflows/slow"
    if not folder.exists():
        shutil.copytree(DEFINITIONS, folder)
        for sub in ("prompts", "demo"):
            (slow / sub).mkdir(parents=True)
    (slow / "workflow.yaml").write_text(SLOW)
    (slow / "prompts/step.md").write_text("Do it.\n")
    rules = [
        {"step": "quick", "output": {"done": 1}},
        {"step": "slow", "output": {"done": 2}, "delay_seconds": seconds},
    ]
    (slow / "demo/model.json").write_text(json.dumps(rules))
    return folder


def steps(run: Any) -> dict[str, Any]:
    return {step["key"]: step for step in run["steps"]}


def test_runs_go_on_where_they_were_when_it_was_killed(data_dir: Path, tmp_path: Path) -> None:
    definitions = slow_definitions(tmp_path / "definitions", seconds=600)
    first = Dev.start(data_dir, "--definitions", definitions)
    try:
        assert first.deliver(story("FERRY-1")).status_code == 202
        story_run = first.started("FERRY-1")
        first.answer(story_run, scripted_answers()[:-1])
        first.waiting(story_run, "release_approval")
        started = first.call("POST", "/definitions/slow/runs", by=DANA, json={"context": {}})
        assert started.status_code == 201, started.text
        slow_run = started.json()["run_id"]
        eventually(
            "the slow step is being executed",
            lambda: [a for a in steps(first.run(slow_run))["slow"]["attempts"] if a["state"] == "running"],
        )
        before = first.run(story_run)
        finished = steps(first.run(slow_run))["quick"]
        servers = first.children
        assert {"postgres", "nats-server"} <= {server.name() for server in servers}
    finally:
        first.kill()
    assert gone(servers)

    slow_definitions(definitions, seconds=0)
    with Dev.start(data_dir, "--definitions", definitions) as second:
        run = second.ended(slow_run)
        assert (run["state"], run["outcome"]) == ("completed", "succeeded")
        assert steps(run)["quick"] == finished, "a finished step is not run again"
        (attempt,) = steps(run)["slow"]["attempts"]
        assert (attempt["state"], attempt["leases_lost"]) == ("succeeded", 1)

        assert second.run(story_run) == before, "what waits for a person has not moved"
        run = second.play(story_run, scripted_answers()[-1:])
        assert (run["state"], run["outcome"]) == ("completed", "succeeded")
        ended_before = {key: step for key, step in steps(before).items() if step["kind"] in ("agent", "parallel")}
        for key, step in ended_before.items():
            assert steps(run)[key]["attempts"] == step["attempts"], key
        assert len(second.calls(story_run)) == 1
        assert second.verified().ok, second.verified().differences
        servers = second.children
        assert second.stop(signal.SIGINT) == 0, second.complained
        assert gone(servers)


def test_one_folder_one_stack_and_a_good_end(data_dir: Path, tmp_path: Path) -> None:
    with Dev.start(data_dir) as dev:
        assert dev.deliver(story("FERRY-2")).status_code == 202
        dev.waiting(dev.started("FERRY-2"), "po_review")
        Path(dev.file["sandbox_calls"]).write_text("")
        refused = command("dev", "--port", "0", "--reset", "--data-dir", data_dir, cwd=tmp_path)
        assert refused.returncode not in (0, None)
        assert f"is in use by pid {dev.process.pid}" in refused.stderr
        assert "Traceback" not in refused.stderr
        assert dev.run(dev.started("FERRY-2"))["state"] == "waiting_decision", "the refused one changed nothing"
        servers = dev.children
        assert dev.stop(signal.SIGTERM) == 0, dev.complained
        assert gone(servers)
        assert dev.complained == ""
        assert not (data_dir / "dev.json").exists(), "nobody is up, so the command line must not think so"

        with Dev.start(data_dir, "--reset") as empty:
            assert empty.get("/runs")["items"] == []
            assert not Path(empty.file["sandbox_calls"]).exists()
            assert empty.get("/definitions")["items"] != []
            assert_it_ends_with(empty, "postgres", says="PostgreSQL ended")
        with Dev.start(data_dir) as again:
            assert again.verified().ok
            assert_it_ends_with(again, "nats-server", says="nats-server ended")


def assert_it_ends_with(dev: Dev, server: str, *, says: str) -> None:
    """One of its servers is killed: it says which, ends with an error and leaves nothing behind."""
    servers = dev.children
    dev.child(server).kill()
    assert dev.wait() not in (0, None)
    words = [line for line in dev.complained.splitlines() if not line.startswith("{")]  # the rest is its log
    assert len(words) == 1, words
    assert words[0].startswith(f"minutebook: {says}")
    assert gone(servers)


def test_a_port_that_is_taken(data_dir: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = str(holder.getsockname()[1])
        refused = command("dev", "--port", port, "--data-dir", data_dir, cwd=tmp_path)
    assert refused.returncode not in (0, None)
    assert f"port {port}" in refused.stderr
    assert "--port" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert "Minutebook is up" not in refused.stdout
    assert not (data_dir / "postgres").exists(), "it was seen before anything was started"
