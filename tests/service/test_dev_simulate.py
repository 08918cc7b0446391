"""`minutebook definitions simulate`: a whole definition in memory, and nothing outside of it."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from minutebook.cli.main import build
from minutebook.cli.session import Exit

FILES: Mapping[str, str] = {
    "workflows/all/workflow.yaml": """
workflow:
  id: all
  name: Every kind
  context: { required: [jira_key] }
  concurrency: { key: "{{context.jira_key}}", limit: 1 }
  triggers:
    - { kind: manual, roles: [developer] }
  roles:
    lead: { groups: [leads] }
  variants:
    fast: { stages.only.steps.cool.wait.for: 5s }
  stages:
    - key: only
      steps:
        - { key: draft, kind: agent, agent: anthropic, model: claude-opus-5-5, prompt: prompts/draft.md,
            output: schemas/draft.json }
        - { key: cool, kind: agent, agent: echo, prompt: prompts/draft.md, wait: { for: 2h } }
        - key: both
          kind: parallel
          join: any
          parallel:
            - { key: left, kind: agent, agent: echo, prompt: prompts/draft.md }
            - { key: right, kind: agent, agent: echo, prompt: prompts/draft.md }
        - { key: sign, kind: manual, role: lead, output: schemas/signed.json }
        - { key: merged, kind: event, source: github, match: { event: merged, key: $context.jira_key } }
        - { key: signed, kind: gate, gate: steps.sign.signed == true }
        - { key: review, kind: decision, role: lead, artifact: draft }
        - { key: file, kind: write, system: tracker, tool: create, for_each: { items: steps.draft.items },
            args_from: item, effect_key: "item:{{index}}" }
  on_failure: { default: suspend, gate_failed: escalate }
""",
    "workflows/all/prompts/draft.md": "Draft it.\n",
    "workflows/all/schemas/draft.json": """{"type": "object", "required": ["items"], "properties": {"items":
      {"type": "array", "minItems": 2, "items":
        {"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}}}}}}""",
    "workflows/all/schemas/signed.json": """{"type": "object", "required": ["signed"], "properties":
      {"signed": {"type": "boolean"}}}""",
    "mcp/tracker.yaml": "server: { id: tracker, transport: streamable_http, url_ref: x, tools: { create: {} } }\n",
    "sources.yaml": "sources: [{ id: github, kind: webhook, adapter: generic }]\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "definitions" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "definitions"


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens a socket fails."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a simulation opened a socket")

    monkeypatch.setattr(socket.socket, "__init__", refused)


def simulate(*arguments: str | Path, code: Exit = Exit.OK) -> str:
    done = CliRunner().invoke(build(), ["definitions", "simulate", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


def told(*arguments: str | Path, code: Exit = Exit.OK) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(simulate(*arguments, "--json", code=code))
    return value


def test_every_kind_of_step_is_walked(folder: Path) -> None:
    said = told(folder, "-c", "jira_key=CORE-1")
    assert (said["state"], said["outcome"]) == ("completed", "succeeded")
    assert said["took_seconds"] == 2 * 3600, "the clock is the simulation's own"
    assert said["decisions"] == [{"step": "review", "role": "lead", "outcome": "approve"}]
    assert [wait["step"] for wait in said["waits"]] == ["cool", "sign", "merged"]
    assert said["writes"] == [
        {
            "step": f"file.{index}",
            "system": "tracker",
            "tool": "create",
            "key": f"item:{index}",
            "arguments": {"title": "Example title"},
        }
        for index in (0, 1)
    ]
    assert said["cost_microdollars"] > 0
    texts = [entry["text"] for entry in said["path"]]
    assert "merged waits for an event of github with event=merged, key=CORE-1" in texts
    assert any(text.startswith("both.right was cancelled") for text in texts)


def test_the_same_is_printed_for_people(folder: Path) -> None:
    said = simulate(folder, "-c", "jira_key=CORE-1")
    assert "tracker.create as item:0" in said
    assert "+2:00:00  cool was queued" in said
    assert said.rstrip().endswith("completed, succeeded")


def test_a_variant_is_walked_as_it_is(folder: Path) -> None:
    assert told(folder, "-c", "jira_key=CORE-1", "--variant", "fast")["took_seconds"] == 5
    refused = simulate(folder, "-c", "jira_key=CORE-1", "--variant", "slow", code=Exit.REFUSED)
    assert "run.variant_unknown" in refused
    assert "default, fast" in refused


def test_given_outputs_and_answers_lead_another_way(folder: Path, tmp_path: Path) -> None:
    given = tmp_path / "outputs.json"
    two = {"items": [{"title": "First"}, {"title": "Second"}]}
    given.write_text(json.dumps({"draft": two, "draft#2": {"items": [{"title": "Only"}]}}))
    answers = ("--answer", "review=request_changes", "--answer", "review=reject")
    said = told(folder, "-c", "jira_key=CORE-1", "--outputs", given, *answers, code=Exit.RUN_FAILED)
    assert (said["state"], said["reason"]) == ("suspended", "output.items: [{'title': 'Only'}] is too short")
    given.write_text(json.dumps({"draft": two}))
    said = told(folder, "-c", "jira_key=CORE-1", "--outputs", given, *answers)
    assert [answer["outcome"] for answer in said["decisions"]] == ["request_changes", "reject"]
    assert (said["state"], said["outcome"], said["writes"]) == ("completed", "rejected", [])


def test_a_refused_gate_is_asked_about(folder: Path, tmp_path: Path) -> None:
    given = tmp_path / "outputs.json"
    given.write_text(json.dumps({"sign": {"signed": False}}))
    said = told(folder, "-c", "jira_key=CORE-1", "--outputs", given, "--answer", "signed=cancel", code=Exit.RUN_FAILED)
    assert said["state"] == "cancelled"
    assert said["decisions"] == [{"step": "signed", "role": "admin", "outcome": "cancel"}]


def test_a_start_that_would_be_refused_is(folder: Path) -> None:
    refused = simulate(folder, code=Exit.REFUSED)
    assert "context.jira_key" in refused
    assert "run.context_missing" in refused


def test_a_broken_definition_is_told_with_its_places(folder: Path) -> None:
    (folder / "workflows/all/prompts/draft.md").unlink()
    refused = simulate(folder, "-c", "jira_key=CORE-1", code=Exit.REFUSED)
    assert "workflows/all/workflow.yaml:" in refused


def test_a_shipped_workflow_is_named_by_its_id() -> None:
    said = told("core-dev", "-c", "jira_key=CORE-1", "-c", "summary=Print an invoice again")
    assert said["state"] == "completed"
    assert [write["tool"] for write in said["writes"]] == ["create_pull_request"]
    assert "there are" in simulate("no-such-thing", code=Exit.NOT_FOUND)
