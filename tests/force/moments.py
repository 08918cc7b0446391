"""Workflows that live by the clock: each is approved, waits for its moment, and writes once."""

from collections.abc import Mapping
from typing import Final

from services.dev.scripts import Rule, ScriptedError, Scripts
from tests.support.stack import DEFINITIONS

MOMENT_SECONDS: Final = 3
"""What each waits for: far less than the clocks are apart."""

LONG_SECONDS: Final = 5
"""How long some work takes: longer than a lease."""


def _workflow(name: str, then: str, *, approval: str = "") -> str:
    return f"""
workflow:
  id: {name}
  name: {name}
  context: {{ required: [key] }}
  run_as: workflows@example.com
  triggers: [{{ kind: manual, roles: [developer] }}]
  roles:
    lead: {{ roles: [platform_admin] }}
  stages:
    - key: only
      steps:
        - {{ key: approval, kind: decision, role: lead, outcomes: [approve, reject]{approval} }}
        {then}
        - key: open_pr
          kind: write
          system: github
          tool: create_pull_request
          requires_decision: approval
          args: {{ owner: acme, repo: booking, title: "{{{{context.key}}}}", head: "workflow/{{{{context.key}}}}" }}
          effect_key: "pr:{{{{context.key}}}}"
  on_failure: {{ default: suspend, connector_unavailable: retry_backoff }}
"""


_TICKS: Final = """
workflow:
  id: ticks
  name: ticks
  run_as: workflows@example.com
  triggers: [{ kind: schedule, cron: "*/2 * * * * *", overlap: allow }]
  stages:
    - key: only
      steps: [{ key: told, kind: agent, agent: echo, prompt: prompts/do.md }]
"""

_STEPS: Final[Mapping[str, str]] = {
    "approved": "",
    "reminded": "",
    "asked": f"- {{ key: when, kind: decision, role: lead, question: When?, timeout: {MOMENT_SECONDS}s,"
    " timeout_answer: { answer: later } }",
    "told": "- { key: told, kind: event, source: replies, match: { event: replied, key: $context.key } }",
    "later": f"- {{ key: later, kind: agent, agent: echo, prompt: prompts/do.md, wait: {{ for: {MOMENT_SECONDS}s }} }}",
    "again": "- { key: again, kind: agent, agent: anthropic, prompt: prompts/do.md }",
}

WORKFLOWS: Final = tuple(_STEPS)

FILES: Final[Mapping[str, str]] = {
    **{
        f"workflows/{name}/workflow.yaml": _workflow(
            name, then, approval=f", due: {MOMENT_SECONDS}s" if name == "reminded" else ""
        )
        for name, then in _STEPS.items()
    },
    **{f"workflows/{name}/prompts/do.md": "Do it.\n" for name in ("later", "again", "ticks")},
    "workflows/ticks/workflow.yaml": _TICKS,
    "sources.yaml": "sources:\n  - { id: replies, kind: webhook, adapter: generic }\n",
    "mcp/github.yaml": (DEFINITIONS / "mcp/github.yaml").read_text(),
}

SCRIPTS: Final[Scripts] = {
    "again": (
        Rule(attempt=1, error=ScriptedError(status=529, type="overloaded_error")),
        Rule(output={"done": True}),
    )
}
"""The model is overloaded at first, so that its step is tried again after a pause."""
