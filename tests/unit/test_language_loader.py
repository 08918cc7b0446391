"""Loading a folder: every problem at once, each with its file, line and path; or the values, complete."""

from datetime import timedelta

import pytest

from contracts.errors import Rejected
from contracts.events.run import RoleBinding
from libs.language.loader import load_folder
from libs.language.model import AgentStep, DecisionStep, EventTrigger, ManualTrigger, ParallelStep, WriteStep
from libs.language.problems import PROBLEMS_MAX

WORKFLOW = """\
workflow:
  id: demo
  name: Demo
  description: Everything once
  domain: core
  context: { required: [jira_key] }
  triggers:
    - { kind: manual, roles: [developer] }
    - { kind: event, source: jira, match: { event: issue_transitioned, to: [Ready] }, project: core }
  run_as: workflows@example.com
  roles:
    lead: { roles: [platform_admin], groups: [leads] }
  stages:
    - key: plan
      name: Plan
      entry: { requires: [context.jira_key] }
      steps:
        - key: draft
          kind: agent
          prompt: prompts/draft.md
          output: schemas/draft.json
          budget_usd: 1.10
          model: m-1
        - { key: ok, kind: decision, role: lead, artifact: draft }
    - key: build
      steps:
        - key: work
          kind: parallel
          parallel:
            - { key: left, agent: echo, prompt: prompts/draft.md, queue: big }
            - { key: right, prompt: prompts/draft.md }
        - key: check
          kind: agent
          prompt: prompts/draft.md
          gate: findings.blocking == 0
          loop_to: work
          loop_max: 2
        - key: last
          kind: decision
          role: lead
          outcomes: [approve, request_changes]
          on: { request_changes: draft }
        - key: send
          kind: write
          system: github
          tool: open
          args_from: check.output.pull_request
          args: { head: "{{state.branch}}", title: "{{args.title}}" }
          effect_key: "open:{{context.jira_key}}"
  limits: { max_attempts: 4, max_loop: 0, wall_clock: 1h30m }
  on_failure: { default: suspend, timeout: retry_backoff, missing_data: fail }
"""

FILES = {
    "workflows/demo/workflow.yaml": WORKFLOW,
    "workflows/demo/prompts/draft.md": "Draft it.\n",
    "workflows/demo/schemas/draft.json": '{"type": "object"}',
    "workflows/demo/demo/model.json": "not read",
    "workflows/demo/README.md": "not read",
    "README.md": "not read",
    ".gitkeep": "",
    "sources.yaml": "sources:\n  - { id: jira, kind: webhook, adapter: jira, secret_ref: jira_secret }\n",
    "mcp/github.yaml": (
        "server:\n  id: github\n  transport: streamable_http\n  url_ref: github_url\n"
        "  tools: { open: { reference: html_url, timeout: 10s }, close: {} }\n"
    ),
}


def problems_of(files: dict[str, str]) -> list[tuple[str | None, int | None, str, str]]:
    with pytest.raises(Rejected) as caught:
        load_folder(files)
    assert (caught.value.code, caught.value.status) == ("definition.invalid", 422)
    return [(item.file, item.line, item.path, item.message) for item in caught.value.errors]


def test_everything_once() -> None:
    folder = load_folder(FILES)
    [bundle] = folder.workflows
    definition = bundle.definition
    assert (definition.id, definition.name, definition.domain, definition.enabled) == ("demo", "Demo", "core", True)
    assert definition.required_context == ("jira_key",)
    assert definition.triggers == (
        ManualTrigger(roles=("developer",)),
        EventTrigger(source="jira", match={"event": "issue_transitioned", "to": ["Ready"]}, project="core"),
    )
    assert definition.run_as == "workflows@example.com"
    assert definition.binding("lead") == RoleBinding(roles=("platform_admin",), groups=("leads",))
    assert definition.binding("other") == RoleBinding(roles=("other",))
    assert [stage.entry_requires for stage in definition.stages] == [("context.jira_key",), ()]
    assert definition.limits.wall_clock == timedelta(hours=1, minutes=30)
    assert (definition.limits.max_attempts, definition.limits.max_loop) == (4, 0)
    assert definition.on_failure == {"default": "suspend", "timeout": "retry_backoff", "missing_data": "fail"}
    draft, ok, work, check, last, send = definition.steps
    assert draft == AgentStep(
        key="draft",
        prompt="prompts/draft.md",
        output="schemas/draft.json",
        budget_microdollars=1_100_000,
        model="m-1",
    )
    assert ok == DecisionStep(key="ok", role="lead", artifact="draft")
    assert isinstance(work, ParallelStep)
    assert [(b.key, b.agent, b.queue) for b in work.parallel] == [
        ("left", "echo", "big"),
        ("right", "anthropic", "default"),
    ]
    assert isinstance(check, AgentStep)
    assert (check.gate, check.loop_to, check.loop_max) == ("findings.blocking == 0", "work", 2)
    assert isinstance(last, DecisionStep)
    assert last.on == {"request_changes": "draft"}
    assert isinstance(send, WriteStep)
    assert send.requires_decision == "last", "the nearest decision before it"
    assert send.args == {"head": "{{state.branch}}", "title": "{{args.title}}"}
    assert bundle.prompts == {"prompts/draft.md": "Draft it.\n"}
    assert bundle.schemas == {"schemas/draft.json": {"type": "object"}}


def test_sources_and_servers() -> None:
    folder = load_folder(FILES)
    [source] = folder.sources
    assert (source.id, source.adapter, source.secret_ref) == ("jira", "jira", "jira_secret")
    assert source.signature_header == "x-hub-signature-256"
    [server] = folder.servers
    assert (server.id, server.url_ref, server.token_ref) == ("github", "github_url", None)
    assert [(tool.name, tool.reference, tool.timeout.total_seconds()) for tool in server.tools] == [
        ("open", "html_url", 10),
        ("close", None, 30),
    ]


def test_a_bundle_survives_storage() -> None:
    [bundle] = load_folder(FILES).workflows
    assert type(bundle).model_validate(bundle.model_dump(mode="json")) == bundle


def test_an_empty_folder_declares_nothing() -> None:
    folder = load_folder({})
    assert (folder.workflows, folder.sources, folder.servers) == ((), (), ())


def test_five_slips_are_five_problems() -> None:
    """An id unlike the directory's name, three unknown keys and a bad type."""
    slips = (
        WORKFLOW.replace("id: demo", "id: demonstration")
        .replace("  domain: core", "  domian: core")
        .replace("max_loop: 0", "max_lop: 0")
        .replace("role: lead, artifact: draft", "role: lead, artifact: draft, colour: red")
        .replace("loop_max: 2", "loop_max: twice")
    )
    file = "workflows/demo/workflow.yaml"
    assert problems_of({**FILES, file: slips}) == [
        (
            file,
            2,
            "id",
            "`demonstration` is not the name of its directory; make it `demo`, or rename the directory",
        ),
        (file, 5, "domian", "unknown key; did you mean `domain`?"),
        (
            file,
            24,
            "stages.plan.steps.ok.colour",
            "unknown key; known: approval_valid_for, approvals, artifact, due, escalate_to, form, key, kind, name, "
            "not, on, outcomes, question, role, timeout, timeout_answer, wait",
        ),
        (file, 37, "stages.build.steps.check.loop_max", "must be a whole number, not text"),
        (file, 50, "limits.max_lop", "unknown key; did you mean `max_loop`?"),
    ]


def test_problems_of_all_files_come_at_once() -> None:
    found = problems_of(
        {
            **FILES,
            "workflows/demo/workflow.yaml": WORKFLOW.replace("name: Demo", "name: 1.10"),
            "workflows/Other/workflow.yaml": "workflow: []",
            "workflows/empty/prompts/a.md": "A",
            "sources.yaml": "sources: { id: jira }",
            "mcp/github.yaml": "\tserver:",
            "mcp/gitlab.yml": "",
        }
    )
    assert [(file, line, path) for file, line, path, _ in found] == [
        ("mcp/github.yaml", 1, "server"),
        ("mcp/gitlab.yml", None, ""),
        ("sources.yaml", 1, "sources"),
        ("workflows/Other/workflow.yaml", None, "id"),
        ("workflows/Other/workflow.yaml", 1, "workflow"),
        ("workflows/demo/workflow.yaml", 3, "name"),
        ("workflows/empty/workflow.yaml", None, "workflow"),
    ]


@pytest.mark.parametrize("path", ["/etc/passwd", "../x.yaml", "workflows/../x", "a//b", "a\\b", "a\nb", ""])
def test_paths_stay_in_the_folder(path: str) -> None:
    [(file, _, _, message)] = problems_of({path: ""})
    assert file == path
    assert "relative" in message


@pytest.mark.parametrize("path", ["notes.txt", "workflows/x.yaml", "workflows/demo/workflow.yml", "mcp/a/b.yaml"])
def test_a_file_that_would_mean_nothing_is_a_problem(path: str) -> None:
    [(file, _, _, message)] = problems_of({**FILES, path: "x"})
    assert file == path
    assert "not a file of a definitions folder" in message


def test_the_list_of_problems_is_bounded() -> None:
    keys = "".join(f"  key_{i}: 1\n" for i in range(PROBLEMS_MAX + 50))
    with pytest.raises(Rejected) as caught:
        load_folder({"workflows/demo/workflow.yaml": "workflow:\n" + keys})
    assert len(caught.value.errors) == PROBLEMS_MAX
    assert "The first 200 are listed" in caught.value.message


def test_a_mark_and_line_ends_change_nothing() -> None:
    assert load_folder({path: "\ufeff" + text.replace("\n", "\r\n") for path, text in FILES.items()}) == load_folder(
        FILES
    )
