"""What the races are about: one decision and one write, with whatever else may end the decision."""

from collections.abc import Mapping
from typing import Final

from tests.support.fleet import EMAIL

DUE_SECONDS: Final = 2
"""A reminder comes after it, the escalation after twice that; where nobody is reminded the step times out after it."""


def _workflow(name: str, decision: str) -> str:
    return f"""
workflow:
  id: {name}
  name: {name}
  context: {{ required: [jira_key] }}
  run_as: {EMAIL}
  triggers: [{{ kind: manual, roles: [developer] }}]
  roles:
    lead: {{ roles: [developer] }}
    boss: {{ roles: [platform_admin] }}
  stages:
    - key: only
      steps:
        - {{ key: review, kind: decision, role: lead, outcomes: [approve, reject]{decision} }}
        - key: open_pr
          kind: write
          system: github
          tool: create_pull_request
          args: {{ owner: acme, repo: core, title: "{{{{context.jira_key}}}}", head: workflow/7 }}
          effect_key: "pr:{{{{context.jira_key}}}}"
  on_failure: {{ default: suspend, connector_unavailable: retry_backoff }}
"""


FILES: Final[Mapping[str, str]] = {
    "workflows/judged/workflow.yaml": _workflow("judged", ""),
    "workflows/hurried/workflow.yaml": _workflow("hurried", f", due: {DUE_SECONDS}s, escalate_to: boss"),
    "workflows/timed/workflow.yaml": _workflow("timed", f", timeout: {DUE_SECONDS}s"),
}
