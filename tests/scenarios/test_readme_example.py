"""The README's own definition, taken by the very commands that it shows: declared, started, decided on."""

import json
import re
import shlex
from pathlib import Path

from tests.support.stack import ROOT, Dev, command, eventually

README = (ROOT / "README.md").read_text()
FILES = dict(re.findall(r"^`(mine/[^`]+)`:\n\n```\w+\n(.*?)^```$", README, re.M | re.S))
LINES = re.findall(r"^    \.venv/bin/minutebook (.*(?:mine|release-note).*)$", README, re.M)


def test_a_definition_in_five_minutes(dev: Dev) -> None:
    here = dev.data_dir.parent  # where its reader has started `minutebook dev`
    for name, text in FILES.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    assert [Path(name).suffix for name in FILES] == [".yaml", ".md", ".json"]
    assert len(LINES) == 4
    for line in LINES:
        done = command(*shlex.split(line), cwd=here)
        assert done.returncode == 0, f"minutebook {line}\n{done.stdout}{done.stderr}"
    (run,) = dev.get("/runs", definition="release-note")["items"]

    def asked() -> str | None:
        inbox = command("--as", "priya@example.com", "--json", "inbox", cwd=here)
        items = [item["decision"] for item in json.loads(inbox.stdout)]
        return next((item["decision_id"] for item in items if item["run_id"] == run["run_id"]), None)

    decision = eventually("priya is asked", asked, seconds=20)
    decided = command("--as", "priya@example.com", "decide", decision, "approve", "-m", "Ship it.", cwd=here)
    assert decided.returncode == 0, decided.stderr
    assert dev.ended(run["run_id"])["outcome"] == "succeeded"
    told = command("--as", "dana@example.com", "runs", "history", run["run_id"], cwd=here)
    assert "priya@example.com approved draft: Ship it." in told.stdout


def test_ids_can_be_copied_from_a_narrow_terminal(dev: Dev) -> None:
    here, dana = dev.data_dir.parent, "dana@example.com"
    body = {"context": {"name": "Ada"}, "project_id": "core"}
    started = dev.call("POST", "/definitions/hello/runs", by=dana, json=body)
    assert started.status_code == 201, started.text
    run_id = started.json()["run_id"]
    decision_id = dev.waiting(run_id, "approve")["decision_id"]
    assert decision_id in command("--as", dana, "inbox", cwd=here, COLUMNS="80").stdout
    assert run_id in command("--as", dana, "runs", "list", cwd=here, COLUMNS="80").stdout
