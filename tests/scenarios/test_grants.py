"""With whose credential the product writes: given on the command line, told by the target's own record."""

import json
import secrets
import subprocess
from pathlib import Path
from typing import Any

from services.dev.sandbox_mcp import SERVER
from tests.support.stack import DEFINITIONS, Dev, command, eventually, story

ADMIN = "admin@example.com"
DANA = "dana@example.com"
SERVICE_USER = "workflows@example.com"

EVERY_SECOND = """
workflow:
  id: every-second
  name: A ticket every second
  triggers:
    - { kind: schedule, cron: "* * * * * *", timezone: UTC, project: core }
    - { kind: manual, roles: [developer] }
  run_as: workflows@example.com
  roles: { owner: { roles: [developer] } }
  stages:
    - key: only
      name: Only
      steps:
        - { key: draft, kind: agent, agent: anthropic, prompt: prompts/draft.md, output: schemas/draft.json }
        - { key: sure, kind: decision, role: owner, artifact: draft }
        - key: ticket
          kind: write
          system: github
          tool: create_pull_request
          args_from: draft.output
          effect_key: ticket
"""
SCHEMA = {
    "type": "object",
    "required": ["repo", "title", "head"],
    "properties": {key: {"type": "string"} for key in ("repo", "title", "head")},
    "additionalProperties": False,
}
FILES = {
    "workflows/every-second/workflow.yaml": EVERY_SECOND,
    "workflows/every-second/prompts/draft.md": "Draft it.\n",
    "workflows/every-second/schemas/draft.json": json.dumps(SCHEMA),
    "mcp/github.yaml": (DEFINITIONS / "mcp/github.yaml").read_text(),
}


def by(dev: Dev, run_id: str) -> list[str]:
    """Who wrote for a run, as the target tells it."""
    return [call["by"] for call in dev.calls(run_id)]


def cli(dev: Dev, *args: str | Path, user: str = DANA, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A command beside the running product."""
    return command("--as", user, *args, cwd=dev.data_dir.parent, stdin=stdin)


def said(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def by_hand(dev: Dev) -> str:
    """A run that Dana starts, played to its end."""
    context = {"context": {"jira_key": f"GRANT-{secrets.randbelow(10**9)}"}, "project_id": "core"}
    run_id: str = dev.call("POST", "/definitions/core-dev/runs", by=DANA, json=context).json()["run_id"]
    assert dev.play(run_id)["state"] == "completed"
    return run_id


def test_a_run_that_an_event_started_writes_with_the_service_users_grant(dev: Dev) -> None:
    jira_key = f"GRANT-{secrets.randbelow(10**9)}"
    assert dev.deliver(story(jira_key)).status_code == 202
    run = dev.play(dev.started(jira_key))
    assert run["initiated_by"]["email"] == SERVICE_USER
    assert by(dev, run["run_id"]) == [SERVICE_USER]


def test_a_run_that_the_clock_started_writes_with_the_service_users_grant(dev: Dev) -> None:
    synced = dev.call("PUT", "/definitions", by=ADMIN, json={"files": FILES})
    assert synced.status_code == 200, synced.text
    try:
        run_id = eventually("a slot", lambda: scheduled(dev))
    finally:
        (line,) = dev.get("/schedules", definition="every-second")["items"]
        assert dev.call("POST", f"/schedules/{line['schedule_id']}/pause", by=ADMIN, json={}).status_code == 200
    decision = dev.waiting(run_id, "sure")["decision_id"]
    assert dev.decide(decision, "approve", by=DANA).status_code == 200
    run = dev.ended(run_id)
    assert (run["state"], run["trigger"]["kind"], run["initiated_by"]["email"]) == (
        "completed",
        "schedule",
        SERVICE_USER,
    )
    assert by(dev, run_id) == [SERVICE_USER]


def scheduled(dev: Dev) -> str | None:
    items: list[Any] = dev.get("/runs", definition="every-second")["items"]
    return items[0]["run_id"] if items else None


def test_people_give_their_own_and_take_it_back(dev: Dev, tmp_path: Path) -> None:
    assert by(dev, by_hand(dev)) == [SERVER]
    token = dev.file["sandbox_tokens"][DANA]
    given = cli(dev, "grants", "give", "github", "--token-stdin", stdin=f"{token}\n")
    assert f"runs of {DANA} write to github with this token: grant" in said(given)
    assert by(dev, by_hand(dev)) == [DANA]
    (mine,) = json.loads(said(cli(dev, "--json", "grants", "list")))
    assert (mine["user"], mine["server"], mine["state"]) == (DANA, "github", "active")
    everybodys = json.loads(said(cli(dev, "--json", "grants", "list", user=ADMIN)))
    assert {(item["user"], item["server"]) for item in everybodys} >= {(DANA, "github"), (SERVICE_USER, "github")}
    assert said(cli(dev, "grants", "revoke", "github")) == f"{DANA} has no grant for github any more\n"
    assert by(dev, by_hand(dev)) == [SERVER]
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    refused = cli(dev, "grants", "give", "github", "--user", SERVICE_USER, "--token-file", file)
    assert (refused.returncode, "grant.not_yours" in refused.stderr) == (1, True)
    allowed = cli(dev, "grants", "give", "salesforce", "--user", SERVICE_USER, "--token-file", file, user=ADMIN)
    assert f"runs of {SERVICE_USER} write to salesforce" in said(allowed)
    for done in (given, refused, allowed):
        assert token not in done.stdout + done.stderr


def test_the_command_line_asks_for_the_token_in_no_other_way(dev: Dev, tmp_path: Path) -> None:
    cases = [
        (("give", "github"), "--token-stdin or by --token-file"),
        (("give", "github", "--token-stdin"), "the token is empty"),
        (("give", "github", "--token-stdin", "--token-file", str(tmp_path / "x")), "not by both"),
        (("give", "github", "--token-file", str(tmp_path / "x")), "cannot be read"),
        (("give", "github", "--token-stdin", "--expires", "soon"), "--expires takes a moment"),
    ]
    for args, says in cases:
        refused = cli(dev, "grants", *args)
        assert (refused.returncode, says in refused.stderr) == (2, True), refused.stderr
    nothing = cli(dev, "grants", "revoke", "nowhere")
    assert (nothing.returncode, "you have no grant for nowhere" in nothing.stderr) == (3, True)


def test_users_come_and_go_by_the_command_line(dev: Dev) -> None:
    email = f"mira-{secrets.token_hex(4)}@example.com"
    assert "is registered" in said(
        cli(dev, "users", "add", email, "--role", "developer", "--project", "core", user=ADMIN)
    )
    assert email in said(cli(dev, "users", "list", user=ADMIN))
    assert said(cli(dev, "users", "deactivate", email, user=ADMIN)) == f"{email} was deactivated\n"
    told = said(cli(dev, "users", "history", email, user=ADMIN))
    assert f"{ADMIN}: {ADMIN} deactivated the user" in told
    for args in (("list",), ("add", "x@example.com"), ("deactivate", email)):
        assert cli(dev, "users", *args).returncode in (1, 3)
    assert cli(dev, "users", "deactivate", "nobody@example.com", user=ADMIN).returncode == 3
