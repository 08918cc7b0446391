"""The workflows that are simulated: the shipped ones, and small ones that reach every kind of step cheaply."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from contracts.base import JsonObject

_SHIPPED: Final = Path(__file__).parents[2] / "definitions"

_TRIGGERS: Final = """
  triggers:
    - { kind: manual, roles: [developer] }
    - { kind: event, source: generic, match: { event: filed, flow: %s } }
  run_as: workflows@example.com
  roles:
    lead: { roles: [lead] }
"""

_NOTE: Final = """
  stages:
    - key: only
      steps:
        - { key: plan, kind: agent, agent: echo, prompt: prompts/do.md }
        - { key: review, kind: decision, role: lead, artifact: plan }
        - key: file
          kind: write
          system: target
          tool: file
          requires_decision: review
          args_from: plan.output.request
          effect_key: "note:{{context.key}}"
  on_failure: { default: suspend, connector_unavailable: retry_backoff, timeout: retry_backoff }
"""

_FAN: Final = """
  stages:
    - key: build
      steps:
        - key: build
          kind: parallel
          join: all
          parallel:
            - { key: left, agent: echo, prompt: prompts/do.md }
            - { key: right, agent: echo, prompt: prompts/do.md }
    - key: release
      steps:
        - { key: approval, kind: decision, role: lead, artifact: build, on: { request_changes: build } }
        - key: file
          kind: write
          system: target
          tool: post
          requires_decision: approval
          args: { title: "{{context.key}}" }
          effect_key: "fan:{{context.key}}"
  on_failure: { default: fail, connector_unavailable: retry_backoff }
"""

_LOOPS: Final = """
  stages:
    - key: only
      steps:
        - { key: draft, kind: agent, agent: echo, prompt: prompts/do.md }
        - key: check
          kind: agent
          agent: echo
          prompt: prompts/do.md
          gate: score == 0
          loop_to: draft
          loop_max: 2
  limits: { max_attempts: 2 }
  on_failure: { default: retry_backoff, gate_failed: fail }
"""

_TWICE: Final = """
  stages:
    - key: first
      steps:
        - { key: plan, kind: agent, agent: echo, prompt: prompts/do.md }
        - { key: go, kind: decision, role: lead, artifact: plan }
        - key: file
          kind: write
          system: target
          tool: file
          requires_decision: go
          args: { title: "{{context.key}}" }
          effect_key: "twice:{{context.key}}"
    - key: second
      steps:
        - key: file_again
          kind: write
          system: target
          tool: file
          requires_decision: go
          args: { title: "{{context.key}}" }
          effect_key: "twice:{{context.key}}"
        - { key: good, kind: decision, role: lead, artifact: plan, on: { request_changes: plan } }
  on_failure: { default: retry_backoff }
"""

_HANDS: Final = """
  stages:
    - key: only
      steps:
        - { key: figures, kind: manual, role: lead, timeout: 20m }
        - { key: draft, kind: agent, agent: echo, prompt: prompts/do.md, wait: { for: 20s } }
        - { key: good, kind: gate, gate: steps.draft.score == 0, loop_to: draft, loop_max: 1 }
        - { key: approval, kind: decision, role: lead, artifact: figures, timeout: 20m }
  limits: { max_attempts: 2 }
  on_failure: { default: escalate, connector_unavailable: retry_backoff }
"""

_ITEMS: Final = """
  stages:
    - key: only
      steps:
        - { key: plan, kind: agent, agent: echo, prompt: prompts/do.md }
        - { key: review, kind: decision, role: lead, artifact: plan }
        - key: parts
          kind: agent
          agent: echo
          prompt: prompts/do.md
          for_each: { items: steps.plan.parts, max_parallel: 2 }
        - key: file
          kind: write
          system: github
          tool: create_pull_request
          requires_decision: review
          for_each: { items: steps.plan.parts, max_parallel: 2 }
          args: { owner: acme, repo: parts, title: "{{item.id}}", head: "{{run_id}}/{{item.id}}" }
          effect_key: "items:{{context.key}}:{{item.id}}"
  on_failure: { default: suspend, connector_unavailable: retry_backoff, timeout: retry_backoff }
"""

_RACES: Final = """
  stages:
    - key: only
      steps:
        - key: try
          kind: parallel
          join: any
          parallel:
            - { key: left, agent: echo, prompt: prompts/do.md }
            - { key: right, agent: echo, prompt: prompts/do.md }
        - { key: told, kind: event, source: generic, match: { event: replied, key: $context.key } }
        - { key: told_again, kind: event, source: generic, match: { event: replied, key: $context.key }, timeout: 30m }
  on_failure: { default: fail, connector_unavailable: retry_backoff, timeout: escalate }
"""

_ALONE: Final = """
  concurrency: { limit: 1 }
  stages:
    - key: only
      steps:
        - { key: plan, kind: agent, agent: echo, prompt: prompts/do.md }
        - { key: review, kind: decision, role: lead, artifact: plan }
  on_failure: { default: fail, connector_unavailable: retry_backoff }
"""

_NEWEST: Final = """
  concurrency: { limit: 2, mode: coalesce }
  stages:
    - key: only
      steps:
        - { key: plan, kind: agent, agent: echo, prompt: prompts/do.md, wait: { for: 10s } }
  on_failure: { default: retry_backoff }
"""

_WIDE: Final = """
  stages:
    - key: only
      steps:
        - key: race
          kind: parallel
          join: any
          parallel:
            - { key: left, agent: echo, prompt: prompts/do.md }
            - { key: right, agent: echo, prompt: prompts/do.md }
        - { key: here, kind: gate, gate: exists(steps.race), wait: { for: 20s } }
        - { key: plan, kind: agent, agent: echo, prompt: prompts/do.md }
        - { key: go, kind: decision, role: lead, artifact: plan }
        - key: file
          kind: write
          system: target
          tool: file
          for_each: { items: context.parts, max_parallel: 2 }
          requires_decision: go
          args: { title: "{{item}}" }
          effect_key: "wide:{{context.key}}:{{index}}"
  on_failure: { default: escalate, connector_unavailable: retry_backoff, timeout: escalate }
"""

_COUNCIL: Final = """
  stages:
    - key: only
      steps:
        - { key: plan, kind: agent, agent: echo, prompt: prompts/do.md }
        - { key: when, kind: decision, role: lead, question: "When is {{context.key}}?", timeout: 40s,
            timeout_answer: { answer: sunday } }
        - { key: sure, kind: decision, role: lead, question: Sure?, timeout: 30s, on: { timeout: go } }
        - { key: go, kind: decision, role: lead, artifact: plan, approvals: { need: 2, veto: none },
            approval_valid_for: 60s, timeout: 20m, on: { timeout: plan } }
        - key: file
          kind: write
          system: target
          tool: note
          requires_decision: go
          args: { title: "{{context.key}}" }
          effect_key: "council:{{context.key}}"
  on_failure: { default: escalate, connector_unavailable: retry_backoff, timeout: escalate }
"""

_TARGET: Final = """
server:
  id: target
  name: A target that can be asked
  transport: streamable_http
  url_ref: github_mcp_url
  token_ref: github_mcp_token
  tools:
    file:
      reference: url
      timeout: 20s
      probe:
        tool: find
        args: { run: "{{run_id}}" }
        items: records
        match: { key: "{{key}}", run: "{{run_id}}" }
        reference: url
        absent: not_landed
      back_link: { tool: link, args: { url: "{{reference}}", body: "{{run_url}}" } }
    post:
      reference: url
      timeout: 20s
      probe:
        tool: find_late
        args: { run: "{{run_id}}" }
        items: records
        match: { key: "{{key}}", run: "{{run_id}}" }
        reference: url
      back_link: { tool: link, args: { url: "{{reference}}", body: "{{run_url}}" } }
    note:
      reference: url
      timeout: 20s
    link: { timeout: 20s }
    find: { timeout: 20s }
    find_late: { timeout: 20s }
"""

LINKED: Final = frozenset({"file", "post"})
"""Tools whose writes have a back-link, whoever finds that they stand."""

SMALL: Final[Mapping[str, str]] = {
    "note": _NOTE,
    "fan": _FAN,
    "loops": _LOOPS,
    "twice": _TWICE,
    "hands": _HANDS,
    "items": _ITEMS,
    "races": _RACES,
    "alone": _ALONE,
    "newest": _NEWEST,
    "wide": _WIDE,
    "council": _COUNCIL,
}
"""Workflows made for the simulation: id → what follows their triggers."""

TRIGGERED_BY: Final = "generic"
"""The source whose event `filed` starts each of them, by its key `flow`, and whose `replied` is waited for."""

REPLIED_TO: Final = "races"
"""The workflow that waits for events `replied` with its key."""


def files() -> dict[str, str]:
    """The definitions folder that is synced."""
    found = {
        str(path.relative_to(_SHIPPED)): path.read_text()
        for path in sorted(_SHIPPED.rglob("*"))
        if path.is_file() and "demo" not in path.parts
    }
    found["mcp/target.yaml"] = _TARGET
    for id_, rest in SMALL.items():
        found[f"workflows/{id_}/workflow.yaml"] = (
            f"workflow:\n  id: {id_}\n  name: {id_}\n  context: {{ required: [key] }}" + _TRIGGERS % id_ + rest
        )
        found[f"workflows/{id_}/prompts/do.md"] = "Do the work."
    return found


def context(id_: str, key: str) -> JsonObject:
    """What a start of this workflow needs."""
    match id_:
        case "core-dev":
            return {"jira_key": key}
        case "hello":
            return {"name": key}
        case "wide":
            return {"key": key, "parts": ["one", "two", "three"]}
        case _:
            return {"key": key}
