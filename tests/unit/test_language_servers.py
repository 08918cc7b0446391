"""Servers of a folder: what each may say of its transport, probes and back-links, and what it says of its own tools."""

from typing import Any

import pytest

from contracts.base import JsonObject
from contracts.errors import Rejected
from libs.language.loader import load_folder

HTTP = "transport: streamable_http\n  url_ref: tracker_url"
PROBE = "{ tool: search, args: { text: '{{run_id}}' }, match: { title: '{{args.title}}' }, absent: not_landed }"
LINK = "{ tool: comment, args: { issue: '{{reference}}', body: '{{run_url}}' } }"
LISTED: dict[str, JsonObject] = {
    "create": {"properties": {"title": {"type": "string"}, "key": {"type": "string"}}, "required": ["key"]},
    "search": {"properties": {"text": {"type": "string"}}},
    "comment": {"properties": {"issue": {"type": "string"}, "body": {"type": "string"}}, "required": ["issue", "body"]},
}


def server(*, head: str = HTTP, probe: str = PROBE, link: str = LINK, more: str = "") -> str:
    tool = f"create: {{ reference: key, idempotency_argument: key, probe: {probe}, back_link: {link} }}"
    return f"server:\n  id: tracker\n  {head}\n{more}  tools:\n    {tool}\n"


def workflow(args: str) -> str:
    return (
        "workflow:\n  id: w\n  name: W\n  stages:\n  - key: one\n    steps:\n"
        "    - { key: ok, kind: decision, role: lead, outcomes: [approve, reject] }\n"
        "    - { key: put, kind: write, system: tracker, tool: create, requires_decision: ok,"
        f" args: {args}, effect_key: k }}\n"
    )


def problems(listed: Any = None, **files: str) -> list[tuple[str, str]]:
    texts = {"mcp/tracker.yaml": files.pop("server", server())}
    if "workflow" in files:
        texts["workflows/w/workflow.yaml"] = files["workflow"]
    try:
        load_folder(texts, listed=None if listed is None else {"tracker": listed})
    except Rejected as error:
        return [(item.path, item.message) for item in error.errors]
    return []


def test_everything_that_may_be_said_of_a_server() -> None:
    text = server(
        more="  concurrency: 2\n  rate_limit: { calls: 5, per: 1m }\n  circuit_breaker: { failures: 3, cooldown: 1m }\n"
    )
    (found,) = load_folder({"mcp/tracker.yaml": text}).servers
    assert found.rate_limit is not None
    assert (found.concurrency, found.rate_limit.calls, found.circuit_breaker.failures) == (2, 5, 3)
    (tool,) = found.tools
    assert tool.probe is not None
    assert tool.back_link is not None
    assert (tool.probe.absent, tool.back_link.tool, tool.idempotency_argument) == ("not_landed", "comment", "key")


def test_a_server_over_pipes() -> None:
    head = "transport: stdio\n  command: [tracker-mcp, --quiet]\n  env: { TOKEN: tracker_token }"
    (found,) = load_folder({"mcp/tracker.yaml": server(head=head)}).servers
    assert (found.transport, found.command, found.env) == (
        "stdio",
        ("tracker-mcp", "--quiet"),
        {"TOKEN": "tracker_token"},
    )


@pytest.mark.parametrize(
    ("fields", "path", "message"),
    [
        ({"head": "transport: stdio"}, "command", "required and missing"),
        ({"head": "transport: stdio\n  command: [x]\n  url_ref: u"}, "url_ref", "means nothing"),
        ({"head": HTTP + "\n  command: [x]"}, "command", "means nothing"),
        ({"head": "transport: stdio\n  command: [x]\n  grants: required"}, "grant_env", "required with"),
        ({"probe": "{ tool: create, match: { a: 1 } }"}, "tools.create.probe.tool", "the write itself"),
        ({"probe": "{ tool: search, match: {} }"}, "tools.create.probe.match", "must not be empty"),
        ({"probe": "{ tool: search, match: { a: '{{reference}}' } }"}, "tools.create.probe.match.a", "unknown root"),
        ({"probe": "{ tool: search, match: { 'a b': 1 } }"}, "tools.create.probe.match.a b", "not a dotted path"),
        ({"link": "{ tool: comment, args: { a: '{{run_url.x}}' } }"}, "tools.create.back_link.args.a", "has no parts"),
    ],
)
def test_what_is_wrong_is_told_at_its_place(fields: dict[str, str], path: str, message: str) -> None:
    ((found, said),) = problems(server=server(**fields))
    assert (found, message in said) == (path, True), said


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        ({"create": None}, "tools.create", "the server has no tool `create`"),
        ({"search": None}, "tools.create.probe.tool", "the server has no tool `search`"),
        ({"create": {"properties": {"title": {}}}}, "tools.create.idempotency_argument", "takes no argument `key`"),
        ({"comment": {"properties": {"issue": {}}}}, "tools.create.back_link.args.body", "takes no argument `body`"),
        (
            {"search": {"properties": {"text": {}, "project": {}}, "required": ["project"]}},
            "tools.create.probe.args",
            "needs the argument `project`",
        ),
    ],
)
def test_what_the_server_itself_says_counts(change: dict[str, Any], path: str, message: str) -> None:
    listed = {name: schema for name, schema in {**LISTED, **change}.items() if schema is not None}
    found = problems(listed)
    assert [(at, message in said) for at, said in found] == [(path, True)], found


@pytest.mark.parametrize(
    ("args", "path", "message"),
    [
        ("{ title: 7, key: b }", "stages.one.steps.put.args.title", "is not of type 'string'"),
        ("{ title: a, key: b, colour: red }", "stages.one.steps.put.args.colour", "takes no argument `colour`"),
        ("{ title: a }", "stages.one.steps.put.args", "needs the argument `key`"),
    ],
)
def test_arguments_of_writes_are_held_to_the_servers_schema(args: str, path: str, message: str) -> None:
    ((found, said),) = problems(LISTED, workflow=workflow(args))
    assert (found, message in said) == (path, True), said
    assert problems(workflow=workflow(args)) == [], "a server that was not asked refuses nothing"


def test_what_holds_a_placeholder_is_known_at_the_run_alone() -> None:
    assert problems(LISTED, workflow=workflow("{ title: '{{context.count}}', key: b }")) == []


def test_a_schema_that_is_none_refuses_nothing() -> None:
    odd = {**LISTED, "create": {"properties": {"title": {"type": "nonsense"}, "key": {"$ref": "https://x.example/y"}}}}
    assert problems(odd, workflow=workflow("{ title: a, key: b }")) == []


READ_BACK = (
    "{ tool: search, args: { text: '{{args.place.name}}' }, match: { title: '{{args.title}}' }, absent: in_doubt }"
)


@pytest.mark.parametrize("listed", [None, LISTED])
def test_what_probe_and_back_link_read_of_a_write_is_there_to_be_read(listed: Any) -> None:
    link = "{ tool: comment, args: { issue: '{{args.key}} {{args.title}}', body: '{{run_url}}' } }"
    found = problems(listed, server=server(probe=READ_BACK, link=link), workflow=workflow("{ key: a }"))
    assert sorted(found) == [
        (
            "stages.one.steps.put.args",
            "the probe of `create` in mcp/tracker.yaml reads {{args.place}}; set `place`",
        ),
        ("stages.one.steps.put.args", "the probe of `create` in mcp/tracker.yaml reads {{args.title}}; set `title`"),
    ]


def test_what_the_server_needs_and_its_probe_reads_is_said_once() -> None:
    listed = {**LISTED, "create": {**LISTED["create"], "required": ["title", "key"]}}
    found = problems(listed, workflow=workflow("{ key: a }"))
    assert found == [("stages.one.steps.put.args", "`create` needs the argument `title`; set it")]


def test_arguments_that_a_producer_adds_are_not_known_before_a_run() -> None:
    text = workflow("{ key: a }").replace("requires_decision: ok,", "requires_decision: ok, args_from: ok,")
    assert not any("reads {{args" in said for _, said in problems(workflow=text))
