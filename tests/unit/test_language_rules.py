"""Each rule of the language, broken once: the one problem that it gives, at its line and path."""

import pytest

from contracts.errors import Rejected
from libs.language.loader import load_folder
from libs.language.rules import STEPS_MAX

HEAD = """\
workflow:
  id: w
  name: W
"""
DRAFT = "{ key: draft, kind: agent, prompt: prompts/p.md }"
OK = "{ key: ok, kind: decision, role: lead }"
SEND = "{ key: send, kind: write, system: github, tool: open, effect_key: k }"
OTHERS = {
    "sources.yaml": "sources: [{ id: jira, kind: webhook, adapter: jira }]",
    "mcp/github.yaml": (
        "server: { id: github, transport: streamable_http, url_ref: u, tools: { open: {}, close_issue: {} } }"
    ),
    "workflows/w/prompts/p.md": "Do it.",
    "workflows/w/schemas/s.json": '{"type": "object"}',
}


def steps(*lines: str) -> str:
    """A workflow with one stage of these steps, the first in line 7."""
    return HEAD + "  stages:\n    - key: s\n      steps:\n" + "".join(f"        - {line}\n" for line in lines)


def problems_of(text: str, **files: str) -> list[tuple[int | None, str, str]]:
    with pytest.raises(Rejected) as caught:
        load_folder({**OTHERS, **files, "workflows/w/workflow.yaml": text})
    return [(item.line, item.path, item.message) for item in caught.value.errors]


def assert_one(found: list[tuple[int | None, str, str]], line: int, path: str, message: str) -> None:
    [(found_line, found_path, found_message)] = found
    assert (found_line, found_path) == (line, path), found_message
    assert message in found_message


def test_the_smallest_workflow_loads() -> None:
    load_folder({**OTHERS, "workflows/w/workflow.yaml": steps(DRAFT)})


@pytest.mark.parametrize(
    "step, path, message",
    [
        ("{ key: a, kind: agent }", "a.prompt", "required and missing"),
        ("{ key: a, kind: agent, promt: prompts/p.md }", "a.promt", "did you mean `prompt`?"),
        ("{ kind: agent, prompt: prompts/p.md }", "0.key", "required and missing"),
        ("{ key: A-b, kind: agent, prompt: prompts/p.md }", "A-b.key", "is not a key"),
        ("{ key: a, prompt: prompts/p.md }", "a.kind", "required and missing"),
        ("{ key: a, kind: agnet, prompt: prompts/p.md }", "a.kind", "did you mean `agent`?"),
        ("{ key: a, kind: manual, output: schemas/t.json }", "a.output", "no file"),
        ("{ key: a, kind: manual, timeout: soon }", "a.timeout", "is not a duration"),
        ("{ key: a, kind: event }", "a.source", "required and missing"),
        ("{ key: a, kind: event, source: jria }", "a.source", "did you mean `jira`?"),
        ("{ key: a, kind: event, source: jira, match: { x: null } }", "a.match.x", "text, a number or a boolean"),
        ("{ key: a, kind: event, source: jira, match: { x: $context } }", "a.match.x", "must be $context.<path>"),
        ("{ key: a, kind: event, source: jira, match: { x: [1, '$context.a b'] } }", "a.match.x", "$context.<path>"),
        ("{ key: a, kind: event, source: jira, match: { x: '{{context.a}}' } }", "a.match.x", "write $context.<path>"),
        ("{ key: a, kind: gate }", "a.gate", "required and missing"),
        ("{ key: a, kind: gate, gate: findings.blocking == 0 }", "a.gate", "no output of its own"),
        ("{ key: a, kind: gate, gate: context.a == 1 and len(x) > 0 }", "a.gate", "`x`: a gate step has no output"),
        ("{ key: a, kind: gate, gate: steps.b.x }", "a.gate", "no step `b`"),
        ("{ key: a, kind: gate, gate: context.a, loop_to: a, loop_max: 1 }", "a.loop_to", "does not come before"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, tools: [Read] }", "a.tools", "`anthropic` has no tools"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, agent: echo, tools: [Read] }", "a.tools", "`echo` has no tools"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, tools: [read] }", "a.tools.0", "is not a tool"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, wait: {} }", "a.wait", "give `for`"),
        (
            "{ key: a, kind: agent, prompt: prompts/p.md, wait: { for: 1h, until: context.x } }",
            "a.wait.until",
            "one of",
        ),
        ("{ key: a, kind: agent, prompt: prompts/p.md, wait: { for: 0s } }", "a.wait.for", "longer than nothing"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, wait: { until: tomorrow } }", "a.wait.until", "must start with"),
        (
            "{ key: a, kind: agent, prompt: prompts/p.md, wait: { until: in 2 h } }",
            "a.wait.until",
            "neither an instant",
        ),
        (
            "{ key: a, kind: agent, prompt: prompts/p.md, wait: { until: 2026-03-02T09:00:00 } }",
            "a.wait.until",
            "has no offset",
        ),
        ("{ key: a, kind: agent, prompt: prompts/p.md, wait: { until: steps.b.at } }", "a.wait.until", "no step `b`"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, for_each: {} }", "a.for_each.items", "required and missing"),
        (
            "{ key: a, kind: agent, prompt: prompts/p.md, for_each: { items: x } }",
            "a.for_each.items",
            "must start with",
        ),
        (
            "{ key: a, kind: agent, prompt: prompts/p.md, for_each: { items: context.l, max_parallel: 51 } }",
            "a.for_each.max_parallel",
            "from 1 to 50",
        ),
        (
            "{ key: a, kind: agent, prompt: prompts/p.md, for_each: { items: context.l }, gate: x == 1 }",
            "a.gate",
            "put a gate step after",
        ),
        ("{ key: a, kind: agent, prompt: prompts/p.md, agent: claude_code }", "a.agent", "not supported yet"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, agent: gpt }", "a.agent", "is not known"),
        ("{ key: a, kind: agent, prompt: prompts/q.md }", "a.prompt", "did you mean `prompts/p.md`?"),
        ("{ key: a, kind: agent, prompt: ../../x.md }", "a.prompt", "inside workflows/w/"),
        ("{ key: a, kind: agent, prompt: /etc/passwd }", "a.prompt", "inside workflows/w/"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, output: schemas/t.json }", "a.output", "no file"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, queue: a.b }", "a.queue", "is not a queue"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, budget_usd: 0 }", "a.budget_usd", "nothing"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, budget_usd: -1 }", "a.budget_usd", "not an amount"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, budget_usd: 0.0000001 }", "a.budget_usd", "six decimals"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, budget_usd: true }", "a.budget_usd", "an amount"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, gate: a = 1 }", "a.gate", "at character 3"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, gate: state.stage == 1 }", "a.gate", "state.branch"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, gate: exists(steps.b) }", "a.gate", "no step `b`"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, gate: exists(context) }", "a.gate", "`context` alone"),
        ("{ key: a, kind: parallel, parallel: [] }", "a.parallel", "must not be empty"),
        (
            "{ key: a, kind: parallel, join: some, parallel: [{key: b, prompt: prompts/p.md}] }",
            "a.join",
            "is not known",
        ),
        (
            "{ key: a, kind: parallel, parallel: [{key: b, prompt: prompts/p.md, tools: [Edit]}] }",
            "a.parallel.b.tools",
            "has no tools",
        ),
        (
            "{ key: a, kind: parallel, parallel: [{key: b, prompt: prompts/p.md, for_each: {items: context.x}}] }",
            "a.parallel.b.for_each",
            "at a step of its own",
        ),
        ("{ key: a, kind: parallel, parallel: [{key: b, prompt: x.md}] }", "a.parallel.b.prompt", "no file"),
        (
            "{ key: a, kind: parallel, parallel: [{key: b, prompt: prompts/p.md, gate: x}] }",
            "a.parallel.b.gate",
            "a branch has no gate",
        ),
        ("{ key: a, kind: parallel, parallel: [{key: a, prompt: prompts/p.md}] }", "a.parallel.a.key", "another step"),
        ("agent", "0", "must be a mapping, not text"),
    ],
)
def test_a_step_alone(step: str, path: str, message: str) -> None:
    assert_one(problems_of(steps(step)), 7, f"stages.s.steps.{path}", message)


@pytest.mark.parametrize(
    "step, path, message",
    [
        ("{ key: draft, kind: agent, prompt: prompts/p.md }", "draft.key", "line 7; each needs its own"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, gate: x, loop_to: draft }", "a.loop_to", "needs `loop_max`"),
        ("{ key: a, kind: agent, prompt: prompts/p.md, gate: x, loop_max: 2 }", "a.loop_max", "needs `loop_to`"),
        (
            "{ key: a, kind: agent, prompt: prompts/p.md, gate: x, loop_to: a, loop_max: 1 }",
            "a.loop_to",
            "does not come before",
        ),
        (
            "{ key: a, kind: agent, prompt: prompts/p.md, gate: x, loop_to: darft, loop_max: 1 }",
            "a.loop_to",
            "did you mean `draft`?",
        ),
        (
            "{ key: a, kind: agent, prompt: prompts/p.md, gate: x, loop_to: draft, loop_max: 21 }",
            "a.loop_max",
            "from 1 to 20",
        ),
        ("{ key: d, kind: decision }", "d.role", "required and missing"),
        ("{ key: d, kind: decision, role: lead, artifact: d }", "d.artifact", "does not come before"),
        ("{ key: d, kind: decision, role: lead, artifact: x }", "d.artifact", "no step `x`"),
        ("{ key: d, kind: decision, role: lead, outcomes: [] }", "d.outcomes", "must not be empty"),
        ("{ key: d, kind: decision, role: lead, outcomes: [aprove] }", "d.outcomes.0", "did you mean `approve`?"),
        ("{ key: d, kind: decision, role: lead, outcomes: [approve, approve] }", "d.outcomes", "twice"),
        ("{ key: d, kind: decision, role: lead, due: 2 h }", "d.due", "is not a duration"),
        ("{ key: d, kind: decision, role: lead, escalate_to: [boss] }", "d.escalate_to", "must be text, not a list"),
        ("{ key: d, kind: decision, role: lead, on: { reject: draft } }", "d.on.reject", "only request_changes can"),
        ("{ key: d, kind: decision, role: lead, on: { aprove: draft } }", "d.on.aprove", "did you mean `approve`?"),
        ("{ key: d, kind: decision, role: lead, on: { request_changes: x } }", "d.on.request_changes", "no step `x`"),
        (
            "{ key: d, kind: decision, role: lead, outcomes: [approve], on: { request_changes: draft } }",
            "d.on.request_changes",
            "does not offer",
        ),
    ],
)
def test_a_step_after_an_agent_step(step: str, path: str, message: str) -> None:
    assert_one(problems_of(steps(DRAFT, step)), 8, f"stages.s.steps.{path}", message)


def test_a_loop_without_a_gate() -> None:
    found = problems_of(steps(DRAFT, "{ key: a, kind: agent, prompt: prompts/p.md, loop_to: draft, loop_max: 1 }"))
    assert [(line, path) for line, path, _ in found] == [
        (8, "stages.s.steps.a.loop_to"),
        (8, "stages.s.steps.a.loop_max"),
    ]


def test_a_decision_that_has_nothing_to_redo() -> None:
    assert_one(
        problems_of(steps(OK)), 7, "stages.s.steps.ok.outcomes", "no earlier agent, manual or parallel step to redo"
    )
    alone = steps("{ key: ok, kind: decision, role: lead, outcomes: [approve, reject] }")
    load_folder({**OTHERS, "workflows/w/workflow.yaml": alone})


def test_an_artefact_is_an_agents() -> None:
    second = "{ key: d, kind: decision, role: lead, artifact: ok }"
    assert_one(
        problems_of(steps(DRAFT, OK, second)),
        9,
        "stages.s.steps.d.artifact",
        "is a decision step; name an earlier agent, manual or parallel step",
    )


@pytest.mark.parametrize(
    "write, path, message",
    [
        ("requires_decision: nobody", "requires_decision", "no step `nobody`"),
        ("requires_decision: draft", "requires_decision", "is an agent step; name an earlier decision step"),
        ("requires_decision: send", "requires_decision", "does not come before"),
        ("args_from: draft", "args_from", "<step>.output.<path>"),
        ("args_from: draft.input.x", "args_from", "<step>.output.<path>"),
        ("args_from: ok.output.x", "args_from", "is a decision step"),
        ("args_from: later.output.x", "args_from", "no step `later`"),
        ('args: { a: { b: ["{{env.HOME}}"] } }', "args.a.b.0", "unknown root"),
        ('args: { a: "{{secrets.token}}" }', "args.a", "unknown root"),
        ('args: { a: "{{run_id.x}}" }', "args.a", "no parts"),
        ('args: { a: "{{state.stage}}" }', "args.a", "state.branch"),
        ('args: { a: "{{context}}" }', "args.a", "context.<name>"),
        ('args: { a: "{{}}" }', "args.a", "unknown root"),
        ('args: { a: "{{context.a b}}" }', "args.a", "context.<name>"),
        ('args: { a: "{{context.a}" }', "args.a", "without its `}}`"),
        ('args: { a: "{{args.a}}" }', "args.a", "without `args_from`"),
        ('args: { a: "{{item.a}}" }', "args.a", "an item only in a step with `for_each`"),
        ('args: { a: "{{index}}" }', "args.a", "an item only in a step with `for_each`"),
        ("args_from: item", "args_from", "<step>.output.<path>"),
        ("for_each: { items: context.l }", "effect_key", "is the same for every item"),
        ('args: { "{{run_id}}": 1 }', "args.{{run_id}}", "cannot stand in a key"),
        ("args: [1]", "args", "must be a mapping, not a list"),
        ("args: { version: 1.10 }", "args.version", 'quote it: "1.10"'),
    ],
)
def test_a_write(write: str, path: str, message: str) -> None:
    step = SEND.replace(" }", f", {write} }}")
    assert_one(problems_of(steps(DRAFT, OK, step)), 9, f"stages.s.steps.send.{path}", message)


@pytest.mark.parametrize(
    "old, new, path, message",
    [
        ("effect_key: k", 'effect_key: "k:{{steps.draft}}"', "effect_key", "unknown root"),
        ("effect_key: k", 'effect_key: "k:{{args.x}}"', "effect_key", "no arguments"),
        (", effect_key: k", "", "effect_key", "required and missing"),
        ("system: github", "system: githup", "system", "did you mean `github`?"),
        ("tool: open", "tool: close", "tool", "did you mean `close_issue`?"),
    ],
)
def test_a_writes_address(old: str, new: str, path: str, message: str) -> None:
    found = problems_of(steps(DRAFT, OK, SEND.replace(old, new)))
    assert_one(found, 9, f"stages.s.steps.send.{path}", message)


def test_a_write_without_a_decision_before_it() -> None:
    assert_one(problems_of(steps(DRAFT, SEND)), 8, "stages.s.steps.send.requires_decision", "no decision comes before")
    assert_one(
        problems_of(steps(DRAFT, SEND, OK)), 8, "stages.s.steps.send.requires_decision", "no decision comes before"
    )


def test_a_write_behind_a_decision_that_cannot_approve() -> None:
    no = "{ key: ok, kind: decision, role: lead, outcomes: [reject] }"
    assert_one(
        problems_of(steps(DRAFT, no, SEND)), 9, "stages.s.steps.send.requires_decision", "does not offer approve"
    )


@pytest.mark.parametrize(
    "lines, line, path, message",
    [
        ("  repo: example", 4, "repo", "the address of a repository"),
        ("  repo: https://me:secret@example.com/x", 4, "repo", "without credentials"),
        ("  variants: [uk]", 4, "variants", "must be a mapping"),
        ("  permission_mode: bypassPermissions", 4, "permission_mode", "is not known"),
        ("  enabled: yes", 4, "enabled", "must be true or false, not text"),
        ("  domain: ' '", 4, "domain", "must not be blank"),
        ("  context: { scope: [a, b, a] }", 4, "context.scope", "`a` is listed twice"),
        ("  context: { required: [a, a] }", 4, "context.required", "`a` is listed twice"),
        ("  concurrency: { limit: 0 }", 4, "concurrency.limit", "from 1 to 1000"),
        ("  concurrency: { mode: drop }", 4, "concurrency.mode", "is not known"),
        ('  concurrency: { key: "{{run_id}}" }', 4, "concurrency.key", "unknown root; known: context"),
        ('  concurrency: { key: "{{context}}" }', 4, "concurrency.key", "{{context.<name>}}"),
        ("  context: { required: [a-b] }", 4, "context.required.0", "is not a context key"),
        ("  triggers: { kind: manual }", 4, "triggers", "must be a list, not a mapping"),
        ("  triggers: [{ kind: manual }]", 4, "triggers.0.roles", "required and missing"),
        ('  triggers: [{ kind: schedule, cron: "0 0 7 * * 1" }]', 1, "run_as", "required with a schedule trigger"),
        ("  triggers: [{ kind: event, source: jira, match: { a: 1 } }]", 1, "run_as", "required with an event trigger"),
        ("  run_as: workflows", 4, "run_as", "is not the email"),
        (
            "  run_as: w@example.com\n  triggers: [{ kind: event, source: jria, match: { a: 1 } }]",
            5,
            "triggers.0.source",
            "did you mean `jira`?",
        ),
        (
            "  run_as: w@example.com\n  triggers: [{ kind: event, source: jira, match: {} }]",
            5,
            "triggers.0.match",
            "must not be empty",
        ),
        (
            "  run_as: w@example.com\n  triggers: [{ kind: event, source: jira, match: { a: { b: 1 } } }]",
            5,
            "triggers.0.match.a",
            "a list of them",
        ),
        (
            "  run_as: w@example.com\n  triggers: [{ kind: event, source: jira, match: { a: $context.b } }]",
            5,
            "triggers.0.match.a",
            "no context to compare with",
        ),
        (
            "  run_as: w@example.com\n  context: { required: [a] }\n  variants: { default: { context.b: 1 } }\n"
            "  triggers: [{ kind: schedule, every: 6h }]",
            7,
            "triggers.0",
            "set `context.a` in variants.default",
        ),
        ("  roles: { lead: { roles: [] } }", 4, "roles.lead", "bound to nobody"),
        ("  roles: { lead: {} }", 4, "roles.lead", "bound to nobody"),
        ("  roles: { lead: { project: false } }", 4, "roles.lead", "bound to nobody"),
        ("  roles: { lead: { role: [a] } }", 4, "roles.lead.role", "did you mean `roles`?"),
        ("  limits: { max_attempts: 0 }", 4, "limits.max_attempts", "from 1 to 20"),
        ("  limits: { max_loop: 1.0 }", 4, "limits.max_loop", "a whole number, not the number 1.0"),
        ("  limits: { max_loop: true }", 4, "limits.max_loop", "a whole number, not the boolean true"),
        ("  limits: { wall_clock: 90 }", 4, "limits.wall_clock", "a duration such as"),
        ("  limits: { wall_clock: 2 hours }", 4, "limits.wall_clock", "is not a duration"),
        ("  limits: { wall_clock: 0s }", 4, "limits.wall_clock", "longer than nothing"),
        ("  limits: { wall_clock: 9999h }", 4, "limits.wall_clock", "at most 720h"),
        ("  limits:", 4, "limits", "must be a mapping, not nothing"),
        ("  on_failure: { default: suspnd }", 4, "on_failure.default", "did you mean `suspend`?"),
        ("  on_failure: { timeuot: fail }", 4, "on_failure.timeuot", "did you mean `timeout`?"),
    ],
)
def test_the_workflow_itself(lines: str, line: int, path: str, message: str) -> None:
    text = steps(DRAFT).replace("  stages:", f"{lines}\n  stages:")
    assert_one(problems_of(text), line, path, message)


@pytest.mark.parametrize(
    "trigger, path, message",
    [
        ("", "cron", "give `cron`"),
        ("cron: 0 0 7 * * 1, every: 6h", "every", "there is `cron` already"),
        ("cron: 0 7 * * 1", "cron", "five fields; seconds come first here: `0 0 7 * * 1`"),
        ("cron: 0 0 7 31 2 *", "cron", "never comes"),
        ("cron: 0 0 7 * * 8", "cron", "is not from 0 to 7"),
        ("cron: 0 0 7 * * 1, timezone: Europe/Berlni", "timezone", "did you mean `Europe/Berlin`?"),
        ("cron: 0 0 7 * * 1, timezone: CEST", "timezone", "is not a time zone"),
        ("cron: 0 0 7 * * 1, timezone: ../../etc/passwd", "timezone", "is not a time zone"),
        ("cron: 0 0 7 * * 1, overlap: queue", "overlap", "is not known"),
        ("every: 0s", "every", "longer than nothing"),
        ("every: 6h, timezone: UTC", "timezone", "means nothing beside `every`"),
        ("every: 6h, overlap: allow", "overlap", "means nothing beside `every`"),
    ],
)
def test_a_schedule(trigger: str, path: str, message: str) -> None:
    lines = f"  run_as: w@example.com\n  triggers: [{{ kind: schedule, {trigger} }}]\n  stages:"
    assert_one(problems_of(steps(DRAFT).replace("  stages:", lines)), 5, f"triggers.0.{path}", message)


def test_the_same_schedule_twice() -> None:
    lines = """\
  run_as: w@example.com
  triggers:
    - { kind: schedule, cron: "0 0 7 * * MON" }
    - { kind: schedule, cron: "0 0  7 * * mon" }
    - { kind: schedule, cron: "0 0 7 * * MON", timezone: Europe/Berlin }
    - { kind: schedule, every: 6h }
  stages:"""
    found = problems_of(steps(DRAFT).replace("  stages:", lines))
    assert_one(found, 7, "triggers.1", "the same schedule stands already in line 6")


@pytest.mark.parametrize(
    "key, more, is_fine",
    [
        ("k:{{index}}", "", True),
        ("k:{{item.id}}", "", True),
        ("k:{{item}}", "", True),
        ("k:{{args.id}}", ", args_from: item", True),
        ("k:{{args.id}}", ", args_from: item.issue, args: { other: 1 }", True),
        ("k:{{args.id}}", ', args: { id: "{{item.id}}" }', True),
        ("k:{{args.id}}", ', args_from: item, args: { id: "x-{{args.id}}" }', True),
        ("k:{{run_id}}", ", args_from: item", False),
        ("k:{{args.id}}", ", args_from: item, args: { id: 1 }", False),
        ("k:{{args.id}}", ', args_from: draft.output.x, args: { a: "{{item}}" }', False),
        ("k:{{context.item}}", ", args_from: item", False),
    ],
)
def test_an_effect_key_tells_the_items_of_a_write_apart(key: str, more: str, is_fine: bool) -> None:
    send = SEND.replace("effect_key: k }", f'effect_key: "{key}", for_each: {{ items: steps.draft.l }}{more} }}')
    text = steps(DRAFT, OK, send)
    if is_fine:
        load_folder({**OTHERS, "workflows/w/workflow.yaml": text})
    else:
        assert_one(problems_of(text), 9, "stages.s.steps.send.effect_key", "is the same for every item")


def test_a_step_cannot_be_called_what_an_item_is_called() -> None:
    send = SEND.replace(
        "effect_key: k }", 'effect_key: "{{index}}", for_each: { items: context.l }, args_from: item.x }'
    )
    found = problems_of(steps(DRAFT.replace("draft", "item"), OK, send))
    assert_one(found, 9, "stages.s.steps.send.args_from", "not from step `item`; rename the step")


@pytest.mark.parametrize(
    "lines",
    [
        ["{ key: a, kind: manual }", "{ key: d, kind: decision, role: lead, artifact: a }"],
        ["{ key: a, kind: event, source: jira }", "{ key: g, kind: gate, gate: steps.a.keys.status == 'Done' }"],
        [DRAFT, "{ key: g, kind: gate, gate: len(steps.draft.l) > 0, loop_to: draft, loop_max: 2, escalate_to: lead }"],
        ["{ key: a, kind: event, source: jira, match: { event: [x, y], issue: $context.jira_key, n: 1 } }"],
        [
            "{ key: a, kind: event, source: jira }",
            "{ key: ok, kind: decision, role: lead, outcomes: [approve] }",
            SEND.replace(" }", ", args_from: a.output.payload }"),
        ],
        ["{ key: a, kind: agent, prompt: prompts/p.md, tools: [], wait: { until: '2026-03-02T09:00:00+01:00' } }"],
        [DRAFT, OK, "{ key: g, kind: gate, gate: context.x, wait: { until: steps.draft.at } }"],
        [DRAFT, OK, SEND, "{ key: g, kind: gate, gate: exists(steps.send.url) }"],
    ],
)
def test_steps_that_fit_each_other(lines: list[str]) -> None:
    load_folder({**OTHERS, "workflows/w/workflow.yaml": steps(*lines)})


@pytest.mark.parametrize(
    "path, message",
    [
        ("jira_key", "must start with context, state or steps"),
        ("steps.draft.x", "step `draft` does not come before"),
        ("steps.x.y", "no step `x`"),
        ("state.stage", "state.branch"),
    ],
)
def test_what_a_stage_may_require(path: str, message: str) -> None:
    text = steps(DRAFT).replace("    - key: s\n", f"    - key: s\n      entry: {{ requires: [{path}] }}\n")
    assert_one(problems_of(text), 6, "stages.s.entry.requires", message)


def test_a_stage_may_require_what_an_earlier_stage_made() -> None:
    second = f"    - key: t\n      entry: {{ requires: [steps.draft.title] }}\n      steps: [{OK}]\n"
    load_folder({**OTHERS, "workflows/w/workflow.yaml": steps(DRAFT) + second})


def test_stages_have_keys_of_their_own() -> None:
    second = f"    - key: s\n      steps: [{OK}]\n"
    assert_one(problems_of(steps(DRAFT) + second), 8, "stages.s.key", "another stage")


def test_what_the_folder_does_not_declare_is_not_judged() -> None:
    alone = {path: text for path, text in OTHERS.items() if path.startswith("workflows/")}
    trigger = "  run_as: w@example.com\n  triggers: [{ kind: event, source: any, match: { a: 1 } }]\n  stages:"
    text = steps(DRAFT, OK, SEND.replace("github", "any")).replace("  stages:", trigger)
    assert load_folder({**alone, "workflows/w/workflow.yaml": text}).workflows


@pytest.mark.parametrize("text", ["", "  \n", "a\x00b", "a\ud800"])
def test_a_prompt_that_cannot_be_kept(text: str) -> None:
    found = problems_of(steps(DRAFT), **{"workflows/w/prompts/p.md": text})
    assert_one(found, 7, "stages.s.steps.draft.prompt", "the prompt prompts/p.md")


@pytest.mark.parametrize(
    "text, path, message",
    [
        ("- id: a", "sources", "a mapping with the key"),
        (
            "sources: [{ id: a, kind: webhook, adapter: sap }]",
            "sources.a.adapter",
            "is not known; known: generic, github",
        ),
        ("sources: [{ id: a, kind: webhook, adapter: jira, window: 169h }]", "sources.a.window", "from 0s to 168h"),
        ("sources: [{ id: a, kind: hook, adapter: jira }]", "sources.a.kind", "is not known"),
        (
            "sources: [{ id: a, kind: webhook, adapter: jira }, { id: a, kind: webhook, adapter: generic }]",
            "sources.a.id",
            "declared already",
        ),
        (
            "sources: [{ id: a, kind: webhook, adapter: jira, signature_header: 'x y' }]",
            "sources.a.signature_header",
            "is not the name of a header",
        ),
    ],
)
def test_sources(text: str, path: str, message: str) -> None:
    assert_one(problems_of(steps(DRAFT), **{"sources.yaml": text}), 1, path, message)


@pytest.mark.parametrize(
    "old, new, path, message",
    [
        ("id: github", "id: gitlab", "id", "is not the name of its file"),
        ("streamable_http", "sse", "transport", "is not known"),
        (", url_ref: u", "", "url_ref", "required and missing"),
        ("open: {}", "open: { timout: 3s }", "tools.open.timout", "did you mean `timeout`?"),
        ("open: {}", "open: { timeout: soon }", "tools.open.timeout", "is not a duration"),
        ("url_ref: u", "url_ref: https://example.com", "url_ref", "the name of a setting"),
    ],
)
def test_servers(old: str, new: str, path: str, message: str) -> None:
    text = OTHERS["mcp/github.yaml"].replace(old, new)
    assert_one(problems_of(steps(DRAFT), **{"mcp/github.yaml": text}), 1, path, message)


_MAIL = "id: a, kind: email, url_ref: u, sender: m@example.com"


@pytest.mark.parametrize(
    "channel, path, message",
    [
        ("id: a, kind: webhook, url_ref: u, about: [run.failed]", "a.secret_ref", "required for webhook"),
        (
            "id: a, kind: slack, url_ref: u, secret_ref: s, about: [run.failed]",
            "a.secret_ref",
            "means nothing for slack",
        ),
        ("id: a, kind: teams, url_ref: u, holders: true, about: [decision.opened]", "a.holders", "only for email"),
        ("id: a, kind: pager, url_ref: u, about: [run.failed]", "a.kind", "is not known"),
        ("id: a, kind: slack, url_ref: https://example.com, about: []", "a.url_ref", "the name of a setting"),
        ("id: a, kind: slack, url_ref: u, about: [run.fialed]", "a.about.0", "did you mean `run.failed`?"),
        ("id: a, kind: slack, url_ref: u, about: [run.failed, run.failed]", "a.about", "is listed twice"),
        ("id: a, kind: slack, url_ref: u, about: [run.failed], roles: [x]", "a.roles", "narrows decisions"),
        ("id: a, kind: email, url_ref: u, to: [a@example.com], about: [run.failed]", "a.sender", "required for email"),
        (f"{_MAIL}, about: [decision.opened]", "a.to", "or `holders: true`"),
        (f"{_MAIL}, about: [decision.opened, run.failed], holders: true", "a.to", "run.failed, which has no holders"),
        (f"{_MAIL}, about: [run.failed], to: ['a@example.com\\r\\nBcc: b@example.com']", "a.to.0", "an address"),
        (f"{_MAIL}, about: [run.failed], to: ['Sam <a@example.com>']", "a.to.0", "is not an address of e-mail"),
    ],
)
def test_channels(channel: str, path: str, message: str) -> None:
    text = f"channels: [{{ {channel} }}]"
    assert_one(problems_of(steps(DRAFT), **{"channels.yaml": text}), 1, f"channels.{path}", message)


def test_channels_have_ids_of_their_own() -> None:
    one = "{ id: a, kind: slack, url_ref: u, about: [] }"
    found = problems_of(steps(DRAFT), **{"channels.yaml": f"channels: [{one}, {one}]"})
    assert_one(found, 1, "channels.a.id", "is declared already")


def test_the_number_of_steps_is_limited() -> None:
    many = [f"{{ key: s{count}, kind: gate, gate: context.a }}" for count in range(STEPS_MAX + 1)]
    assert_one(problems_of(steps(*many)), 4, "stages", f"{STEPS_MAX + 1} steps and branches; at most {STEPS_MAX}")
    load_folder({**OTHERS, "workflows/w/workflow.yaml": steps(*many[:STEPS_MAX])})
