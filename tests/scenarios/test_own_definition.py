"""A definition that somebody wrote: checked, synced and run through the command line, and refused where it is wrong."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.conftest import OWN
from tests.support.stack import Dev, command

DANA = "dana@example.com"
PRIYA = "priya@example.com"
ANSWERS: list[dict[str, Any]] = [
    {"step": "sign_off", "round": 1, "user": PRIYA, "outcome": "request_changes", "comment": "Say when."},
    {"step": "sign_off", "round": 2, "user": PRIYA, "outcome": "approve"},
]


def said(dev: Dev, *args: str | Path) -> Any:
    """What a command answers as JSON, run where `dev` was started; it must succeed."""
    done = command("--json", *args, cwd=dev.data_dir.parent)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_definition_of_ones_own_runs_to_its_end(dev: Dev) -> None:
    assert said(dev, "definitions", "validate", OWN) == {"ok": True, "problems": []}
    (synced,) = said(dev, "definitions", "sync", OWN)["synced"]
    assert (synced["kind"], synced["id"]) == ("workflow", "incident-review")

    incident = f"I-{synced['hash'][:6]}"
    started = said(
        dev, "--as", DANA, "runs", "start", "incident-review", "--project", "core", "-c", f"incident={incident}"
    )
    run = dev.play(started["run_id"], ANSWERS)
    assert (run["state"], run["outcome"], run["definition_hash"]) == ("completed", "succeeded", synced["hash"])

    steps = {step["key"]: step for step in run["steps"]}
    assert {key: step["round"] for key, step in steps.items()} == {
        "outline": 2,  # changes were requested at the end, `on` leads back to here
        "sides": 3,  # and the check's gate refused once
        "sides.people": 3,
        "sides.machines": 3,
        "check": 3,
        "sign_off": 2,
        "file": 1,
    }
    (call,) = dev.calls(run["run_id"])
    assert call["arguments"] == {
        "title": "Written twice",
        "body": "No lock.",
        "repo": "incidents",
        "base": incident,
        "head": call["arguments"]["head"],
    }
    assert run["effects"][0]["key"] == f"incident:{incident}"
    redone = dev.get(f"/runs/{run['run_id']}/artifacts/outline")["proposed"]
    assert redone == {"summary": "The night job wrote twice, on the second of May."}
    again = said(dev, "definitions", "sync", OWN)["synced"]
    assert [thing["changed"] for thing in again] == [False]


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The definition under another id, with an unknown key, a repeated one and a value of a bad type."""
    folder = tmp_path / "broken"
    workflow = folder / "workflows/broken-review"
    shutil.copytree(OWN / "workflows/incident-review", workflow)
    text = (workflow / "workflow.yaml").read_text()
    for right, wrong in (
        ("id: incident-review", "id: broken-review"),
        ("          role: owner\n", "          role: owner\n          reviewers: 2\n"),
        ("  name: Incident review\n", "  name: Incident review\n  name: Incident review, again\n"),
        ("max_attempts: 2", "max_attempts: often"),
    ):
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    (workflow / "workflow.yaml").write_text(text)
    return folder


def test_a_broken_definition_is_refused_with_every_place(dev: Dev, broken: Path) -> None:
    file = "workflows/broken-review/workflow.yaml"
    lines = (broken / file).read_text().splitlines()
    places = {
        "name": 1 + lines.index("  name: Incident review, again"),
        "stages.filing.steps.sign_off.reviewers": 1 + lines.index("          reviewers: 2"),
        "limits.max_attempts": 1 + next(n for n, line in enumerate(lines) if "often" in line),
    }
    checked = command("definitions", "validate", broken, "--json", cwd=broken)
    assert checked.returncode == 1
    told = json.loads(checked.stdout)
    assert told.keys() == {"ok", "problems"}
    assert told["ok"] is False
    for found in told["problems"]:
        assert found.keys() == {"file", "line", "path", "message"}
        assert found["file"] == file
        assert found["message"]
    assert {found["path"]: found["line"] for found in told["problems"]} == places

    in_words = command("definitions", "validate", broken, cwd=broken)
    assert in_words.returncode == 1
    for path, line in places.items():
        assert f"{file}:{line}: {path}: " in in_words.stdout + in_words.stderr

    refused = command("definitions", "sync", broken, cwd=dev.data_dir.parent)
    assert refused.returncode == 1
    for path, line in places.items():
        assert f"{file}:{line}: {path}: " in refused.stderr
    assert dev.call("GET", "/definitions/broken-review", by=DANA).status_code == 404
    assert "broken-review" not in {item["id"] for item in dev.get("/definitions")["items"]}


def test_one_broken_definition_keeps_the_others_out(dev: Dev, broken: Path) -> None:
    good = broken / "workflows/good-review"
    shutil.copytree(OWN / "workflows/incident-review", good)
    text = (good / "workflow.yaml").read_text().replace("id: incident-review", "id: good-review")
    (good / "workflow.yaml").write_text(text)
    refused = command("definitions", "sync", broken, cwd=dev.data_dir.parent)
    assert refused.returncode == 1
    assert dev.call("GET", "/definitions/good-review", by=DANA).status_code == 404
    not_an_administrator = command("--as", DANA, "definitions", "sync", OWN, cwd=dev.data_dir.parent)
    assert not_an_administrator.returncode == 1
    assert "administrators" in not_an_administrator.stderr
