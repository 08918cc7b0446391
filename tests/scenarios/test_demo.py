"""`minutebook demo`, as somebody runs it who has just installed the product."""

import json
import subprocess
from pathlib import Path
from typing import Any

import psutil

from tests.support.stack import COMMAND, children, environment, gone


class Watched:
    """A `minutebook demo` in a temporary folder of its own that was watched until it ended."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.processes: set[psutil.Process] = set()
        self.commands: set[tuple[str, ...]] = set()
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(
                [COMMAND, "demo", *args],
                cwd=folder,
                env=environment(TMPDIR=str(self.temporary)),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
            while True:
                self._look(process.pid)
                try:
                    self.code = process.wait(0.05)
                    break
                except subprocess.TimeoutExpired:
                    continue
        self.out, self.err = ((folder / name).read_text() for name in ("out", "err"))

    def _look(self, pid: int) -> None:
        for child in children(pid):
            self.processes.add(child)
            try:
                self.commands.add((child.name(), *child.cmdline()))  # each time: a child is us until it is itself
            except psutil.NoSuchProcess:
                continue

    def assert_nothing_is_left(self) -> None:
        """Every process that was seen has ended, and no folder of theirs is there any more."""
        assert "nats-server" in {command[0] for command in self.commands}
        server = next(command for command in self.commands if command[0] == "postgres" and "-D" in command)
        database = Path(server[server.index("-D") + 1])
        sockets = Path(next(part for part in server if part.startswith("unix_socket_directories=")).partition("=")[2])
        assert gone(list(self.processes))
        assert list(self.temporary.iterdir()) == []
        assert not database.parent.exists()
        assert not database.parent.with_suffix(".id").exists()
        assert not sockets.exists()


def test_the_demo_as_one_object(tmp_path: Path) -> None:
    demo = Watched(tmp_path, "--json")
    assert demo.code == 0, demo.err
    told = json.loads(demo.out)
    assert demo.out.count("\n") == 1
    _assert_shape(told)

    assert (told["state"], told["outcome"], told["definition"]) == ("completed", "succeeded", "core-dev")
    assert len(told["hash"]) == 64
    assert told["verified"] is True
    assert told["history_events"] > len(told["steps"])

    attempts = {step["key"]: step["attempts"] for step in told["steps"]}
    assert attempts == {
        "story_analysis": 2,  # changes were requested
        "po_review": 2,
        "design": 1,
        "design_review": 1,
        "implement": 2,  # the review's gate refused once
        "implement.backend": 2,
        "implement.frontend": 2,
        "review": 2,
        "release_approval": 1,
        "open_pr": 1,
    }
    assert {step["state"] for step in told["steps"]} == {"succeeded"}
    assert [(d["key"], d["outcome"], d["by"]) for d in told["decisions"]] == [
        ("po_review", "request_changes", "priya@example.com"),
        ("po_review", "approve", "priya@example.com"),
        ("design_review", "approve", "lena@example.com"),
        ("release_approval", "approve", "lena@example.com"),
    ]
    assert told["cost_microdollars"] == sum(step["cost_microdollars"] for step in told["steps"]) > 0
    (effect,) = told["effects"]
    assert (effect["system"], effect["tool"], effect["state"]) == ("github", "create_pull_request", "succeeded")
    assert effect["key"] == "pull_request:FERRY-142"
    assert effect["reference"].startswith("http")
    demo.assert_nothing_is_left()


def _assert_shape(told: dict[str, Any]) -> None:
    assert list(told) == [
        "run_id",
        "state",
        "outcome",
        "definition",
        "hash",
        "steps",
        "decisions",
        "effects",
        "cost_microdollars",
        "history_events",
        "verified",
    ]
    for step in told["steps"]:
        assert list(step) == ["key", "kind", "state", "attempts", "cost_microdollars"]
    for decision in told["decisions"]:
        assert list(decision) == ["key", "outcome", "by"]
    for effect in told["effects"]:
        assert list(effect) == ["key", "system", "tool", "state", "reference"]


def test_the_demo_in_words(tmp_path: Path) -> None:
    demo = Watched(tmp_path)
    assert demo.code == 0, demo.err
    assert demo.err == ""
    assert "\x1b" not in demo.out, "control sequences where there is no terminal"
    lines = demo.out.splitlines()
    for told in (
        "the model is scripted: no key is needed and nothing is spent",
        "What happened",
        "What it cost",
        "What was written outside",
    ):
        assert told in lines
    assert any("priya@example.com asked for changes on story_analysis" in line for line in lines)
    assert any("lena@example.com approved review with a revision" in line for line in lines)
    assert any("review sent the run back to implement, because its gate refused" in line for line in lines)
    assert "  calls that reached the target: 1" in lines
    assert lines[-1].endswith("chain and head rows verify.")
    demo.assert_nothing_is_left()
