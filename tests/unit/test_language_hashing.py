"""The content hash: what is the same version, and what is another."""

from typing import Any

import pytest

from libs.language.loader import load_folder

WORKFLOW = """\
workflow:
  id: w
  name: W   # shown to people
  stages:
    - key: s
      steps:
        - { key: a, kind: agent, prompt: prompts/p.md, output: schemas/s.json }
        - { key: ok, kind: decision, role: lead }
"""
SCHEMA = '{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}'
PROMPT = "# Do it\n\nWell.\n"


def version(workflow: str = WORKFLOW, prompt: str = PROMPT, schema: str = SCHEMA, **other: str) -> str:
    files: dict[str, Any] = {
        "workflows/w/workflow.yaml": workflow,
        "workflows/w/prompts/p.md": prompt,
        "workflows/w/schemas/s.json": schema,
        **other,
    }
    [bundle] = load_folder(files).workflows
    return bundle.hash


def test_the_hash_itself() -> None:
    """Pinned: runs in flight name it, so it may not move under them."""
    assert version() == "43561e690c0f81472d8951e19b7e1dae93ea3da2557b1b56410fdbcf57cfb64a"


@pytest.mark.parametrize(
    "changed",
    [
        {"workflow": WORKFLOW.replace("   # shown to people", "")},
        {"workflow": "# first\n\n" + WORKFLOW.replace("  id: w\n  name: W", "  name: 'W'\n  id: \"w\"")},
        {"workflow": WORKFLOW.replace("key: a, kind: agent", "kind: agent, key: a")},
        {"workflow": "\ufeff" + WORKFLOW.replace("\n", "\r\n")},
        {"prompt": "\ufeff" + PROMPT.replace("\n", "\r\n")},
        {"schema": '\ufeff{\r\n"required": ["a"], "properties": {"a": {"type": "string"}},\r\n"type": "object"}\r\n'},
        {"workflows/w/prompts/unused.md": "Nothing names it."},
        {"workflows/w/demo/model.json": "[]"},
        {"workflows/w/README.md": "About it."},
    ],
)
def test_the_same_version(changed: dict[str, str]) -> None:
    assert version(**changed) == version()


@pytest.mark.parametrize(
    "changed",
    [
        {"prompt": PROMPT.replace("Well.", "Well!")},
        {"prompt": PROMPT + " "},
        {"schema": SCHEMA.replace('"required": ["a"]', '"required": []')},
        {"workflow": WORKFLOW.replace("name: W", "name: V")},
        {"workflow": WORKFLOW.replace("role: lead", "role: boss")},
        {"workflow": WORKFLOW.replace("  name: W", "  enabled: true\n  name: W")},
    ],
)
def test_another_version(changed: dict[str, str]) -> None:
    assert version(**changed) != version()


def test_sources_and_servers_have_hashes_too() -> None:
    def hashes(sources: str, server: str) -> tuple[str, str]:
        folder = load_folder({"sources.yaml": sources, "mcp/s.yaml": server})
        return folder.sources[0].hash, folder.servers[0].hash

    source = "sources: [{ id: a, kind: webhook, adapter: jira }]"
    server = "server: { id: s, transport: streamable_http, url_ref: u, tools: { t: {} } }"
    same = hashes("# comment\nsources:\n  - adapter: jira\n    kind: webhook\n    id: a\n", server)
    assert same == hashes(source, server)
    other = hashes(source.replace("jira", "generic"), server.replace("t: {}", "t: { timeout: 5s }"))
    assert not set(other) & set(same)
