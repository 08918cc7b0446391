"""The published schemas: sound themselves, made of the grammar, and never stricter than the loader."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from libs.language.grammar import CHANNEL, SOURCE, WORKFLOW
from libs.language.nodes import plain
from libs.language.problems import Problems
from libs.language.published import FILE_KINDS, FileKind, published_schema
from libs.language.reader import read
from libs.language.steps import STEPS
from services.dev.validation import print_schema
from tests.unit.test_language_whole import FILES
from tests.unit.test_language_whole import WORKFLOW as WHOLE

ROOT = Path(__file__).parents[2]
SHIPPED: dict[str, list[Path]] = {
    "workflow": [
        *ROOT.glob("definitions/workflows/*/workflow.yaml"),
        *ROOT.glob("tests/scenarios/own/*/*/workflow.yaml"),
    ],
    "sources": [ROOT / "definitions/sources.yaml"],
    "server": [*ROOT.glob("definitions/mcp/*.yaml")],
}


def value_of(text: str) -> Any:
    problems = Problems()
    node = read("file.yaml", text, problems, path="file")
    assert node is not None
    return plain(node)


def misfits(kind: FileKind, text: str) -> list[str]:
    errors = Draft202012Validator(published_schema(kind)).iter_errors(value_of(text))
    return [".".join(str(part) for part in error.absolute_path) for error in errors]


@pytest.mark.parametrize("kind", FILE_KINDS)
def test_it_is_a_schema(kind: FileKind) -> None:
    Draft202012Validator.check_schema(published_schema(kind))
    json.dumps(published_schema(kind), allow_nan=False)


@pytest.mark.parametrize(
    "kind, file", [pytest.param(kind, file, id=file.parent.name) for kind, files in SHIPPED.items() for file in files]
)
def test_it_takes_what_is_shipped(kind: FileKind, file: Path) -> None:
    assert misfits(kind, file.read_text("utf-8")) == []


def test_it_takes_every_key_of_the_language() -> None:
    assert misfits("workflow", WHOLE) == []
    assert misfits("channels", FILES["channels.yaml"]) == []


def test_it_knows_the_keys_of_the_grammar() -> None:
    whole: Any = published_schema("workflow")
    workflow = whole["properties"]["workflow"]
    assert set(workflow["properties"]) == set(WORKFLOW.fields)
    stage = workflow["properties"]["stages"]["items"]
    kinds = {
        one["then"]["properties"]["kind"]["const"]: one["then"]
        for one in stage["properties"]["steps"]["items"]["allOf"]
    }
    assert {kind: set(then["properties"]) for kind, then in kinds.items()} == {
        kind: set(shape.fields) for kind, shape in STEPS.items()
    }
    sources: Any = published_schema("sources")
    assert set(sources["properties"]["sources"]["items"]["properties"]) == set(SOURCE.fields)
    channels: Any = published_schema("channels")
    assert set(channels["properties"]["channels"]["items"]["properties"]) == set(CHANNEL.fields)


@pytest.mark.parametrize(
    "old, new, path",
    [
        ("name: Whole", "nmae: Whole", "workflow"),
        ("name: Whole", "name: 1", "workflow.name"),
        ("limit: 2", "limit: 0", "workflow.concurrency.limit"),
        ("join: any", "join: some", "workflow.stages.0.steps.3.join"),
        ("join: any", "gate: x", "workflow.stages.0.steps.3"),
        (
            "kind: manual, role: presales, output",
            "kind: manul, role: presales, output",
            "workflow.stages.0.steps.0.kind",
        ),
        ("max_parallel: 2", "max_parallel: 51", "workflow.stages.0.steps.7.for_each.max_parallel"),
        ("timeout: 8h", "timeout: 8 hours", "workflow.stages.0.steps.0.timeout"),
        ("every: 6h", "every: 6", "workflow.triggers.3.every"),
        ("default: escalate", "default: shout", "workflow.on_failure.default"),
        ("{ deal: $context.deal }", "{ deal: [] }", "workflow.stages.0.steps.1.match.deal"),
    ],
)
def test_it_refuses_what_one_look_can_refuse(old: str, new: str, path: str) -> None:
    assert old in WHOLE
    assert misfits("workflow", WHOLE.replace(old, new, 1))[:1] == [path]


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_schema("workflow")
    assert json.loads(capsys.readouterr().out) == published_schema("workflow")
