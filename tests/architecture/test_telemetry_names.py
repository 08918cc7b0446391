"""The names of spans and log fields are an interface: the document and the code say the same."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from contracts.commands import COMMANDS
from libs.telemetry.metrics import RECORD, REGISTRY

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/telemetry.md").read_text("utf-8")
CODE = [path for folder in ("libs", "services") for path in sorted((ROOT / folder).rglob("*.py"))]

# What stands in the code where a name is not a constant → how the document writes it.
WRITTEN_AS = {
    "f\"api {scope['method']}\"": "api <METHOD> <route>",
    "command.subject": "ask.<service>.<command>",
}
ADDED_TO_EVERY_LINE = {"timestamp", "level", "event", "service", "component", "trace_id"}
LOGS = {"debug", "info", "warning", "error", "exception", "bind"}
NEVER_LOGGED = re.compile(
    r"payload|prompt|body|secret|token|artifact|artefact|output|argument|context|content|password"
)


def calls() -> Iterator[ast.Call]:
    for path in CODE:
        yield from (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call))


def column(heading: str) -> list[str]:
    """The names in the first column of a section's table."""
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)]


def log_fields() -> set[str]:
    """Every field that a log line of ours is given."""
    fields: set[str] = set()
    for call in calls():
        target = call.func
        if isinstance(target, ast.Attribute) and target.attr in LOGS:
            of = target.value.attr if isinstance(target.value, ast.Attribute) else getattr(target.value, "id", "")
            if of in {"_log", "log"}:
                fields |= {keyword.arg for keyword in call.keywords if keyword.arg}
    return fields


def test_the_spans_are_those_of_the_document() -> None:
    opened = set()
    for call in calls():
        if isinstance(call.func, ast.Name) and call.func.id == "span":
            first = call.args[0]
            name = first.value if isinstance(first, ast.Constant) else ast.unparse(first)
            opened.add(WRITTEN_AS.get(str(name), str(name)))
    assert opened == set(column("Traces"))


def test_the_attributes_are_in_the_code() -> None:
    source = "\n".join(path.read_text("utf-8") for path in CODE)
    rows = re.findall(r"^\| `.*\| ([^|]*) \|$", TEXT.partition("\n## Logs\n")[0], re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    assert len(named) >= 8
    assert [name for name in named if f'"{name}"' not in source] == []


def test_the_commands_are_told_whole() -> None:
    assert set(re.findall(r"`(ask\.\w+\.\w+)`", TEXT)) == set(COMMANDS)


def test_the_metrics_are_those_of_the_document() -> None:
    families = {family.name: family.type for family in (*REGISTRY.collect(), *RECORD.describe())}
    shown = {f"{name}_total" if kind == "counter" else name for name, kind in families.items()}
    assert {name for name in shown if not name.startswith("process_")} == set(column("Metrics"))


def test_the_log_fields_of_the_document_are_logged() -> None:
    assert set(column("Logs")) - ADDED_TO_EVERY_LINE <= log_fields()


def test_no_log_line_is_given_what_somebody_sent() -> None:
    assert [name for name in log_fields() if NEVER_LOGGED.search(name)] == []
