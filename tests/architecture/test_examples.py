"""What the documents show is what the code takes: definitions, scripts, expressions, keys, routes and exit codes."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

from contracts.errors import Rejected
from contracts.subjects import DEFINITIONS_BYTES_MAX
from libs.adapters.jira import _EVENTS
from libs.domain.effect import CALL_TIMEOUT_MAX
from libs.domain.run.backoff import BACKOFF_FIRST, BACKOFF_JITTER, BACKOFF_MAX
from libs.domain.run.programs.definition.items import ITEMS_MAX
from libs.language import grammar, reader, steps, syntax
from libs.language.expressions import parse
from libs.language.files import FILES_MAX
from libs.language.interpolation import ITEM_ROOTS, ROOTS, placeholders
from libs.language.loader import load_folder
from libs.language.model import (
    AgentStep,
    Concurrency,
    DecisionStep,
    Definition,
    ForEach,
    Limits,
    ParallelStep,
    ScheduleTrigger,
    Source,
)
from libs.language.reader import FILE_CHARS_MAX, VALUES_MAX, YAML_CHARS_MAX
from libs.language.rules import STEPS_MAX
from libs.language.scalars import DURATION_MAX, ID, KEY, ROLE, TEXT_CHARS_MAX
from libs.language.shapes import Shape
from libs.language.syntax import EXPRESSION_CHARS_MAX
from libs.language.templates import BACK_LINK_ROOTS
from libs.language.variants import VARIANTS_MAX
from minutebook.cli.session import Exit
from minutebook.models.states import DecisionOutcome, FailureAction, FailureClass
from services.dev.demo import ScriptedAnswer
from services.dev.scripts import Rule
from services.runner.executors import OUTPUT_BYTES_MAX

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("docs/definitions.md", "README.md")
FENCE = re.compile(r"(?:^`([\w./-]+\.\w+)`[^\n]*:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Example:
    """A fenced block. `file` is the path that the line before it names."""

    document: str
    line: int
    language: str
    file: str | None
    text: str


def examples(document: str) -> Iterator[Example]:
    whole = (ROOT / document).read_text("utf-8")
    for found in FENCE.finditer(whole):
        line = whole.count("\n", 0, found.start(3)) + 1
        yield Example(document, line, found[2], found[1], found[3])


def of(*languages: str, document: str | None = None) -> list[Any]:
    """Examples of these languages as test parameters."""
    return [
        pytest.param(example, id=f"{example.document}:{example.line}")
        for name in DOCUMENTS
        for example in examples(name)
        if example.language in languages and document in (None, name)
    ]


# --- definitions ---------------------------------------------------------------------------------------------------

STEPS = """
        - { key: draft, kind: agent, prompt: prompts/draft.md }
        - { key: approval, kind: decision, role: editor, artifact: draft }
"""
FRAME = """
workflow:
  id: example
  name: Example
{top}
  stages:
    - key: only
      steps:
{steps}
"""
SCHEMA = '{"type": "object", "properties": {"findings": {"type": "object"}}}'


def indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}" if line.strip() else line for line in text.splitlines(keepends=True))


def folder_of(example: Example) -> dict[str, str]:
    """The folder that an example stands in: it alone when it is a whole file, else a small workflow round it."""
    text = example.text
    if text.startswith("sources:"):
        return {"sources.yaml": text}
    if text.startswith("channels:"):
        return {"channels.yaml": text}
    if text.startswith("server:"):
        return {f"mcp/{re.search(r'id: ([a-z-]+)', text)[1]}.yaml": text}  # type: ignore[index]  # else the test fails
    if not text.startswith("workflow:"):
        is_steps = text.startswith("- ")
        text = FRAME.format(
            top="" if is_steps else indented(text, 2), steps=STEPS + (indented(text, 8) if is_steps else "")
        )
    name = re.search(r"^  id: ([a-z-]+)", text, re.MULTILINE)
    assert name is not None
    directory = f"workflows/{name[1]}"
    named = set(re.findall(r"\b(?:prompts/\w+\.md|schemas/\w+\.json)", text))
    files = {path: "Do it.\n" if path.endswith(".md") else SCHEMA for path in named}
    return {f"{directory}/workflow.yaml": text, **{f"{directory}/{path}": body for path, body in files.items()}}


@pytest.mark.parametrize("example", of("yaml"))
def test_an_example_is_a_definition(example: Example) -> None:
    try:
        load_folder(folder_of(example))
    except Rejected as refused:
        pytest.fail("\n".join(f"{item.file}:{item.line} {item.path}: {item.message}" for item in refused.errors))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_files_of_a_whole_example_fit_each_other(document: str) -> None:
    """Everything with a path, as one folder; prompts and schemas that are not shown are filled in."""
    named = {example.file.removeprefix("mine/"): example.text for example in examples(document) if example.file}
    shown = {path: text for path, text in named.items() if "/demo/" not in path}
    folder = dict(shown)
    for path, text in shown.items():
        if path.endswith("workflow.yaml"):
            made = folder_of(Example(document, 0, "yaml", path, text))
            folder = {**{name: body for name, body in made.items() if name not in shown}, **folder}
    loaded = load_folder(folder)
    assert len(loaded.workflows) == 1
    assert any(path.endswith(".json") for path in shown)


def test_the_gates_that_are_shown_are_expressions() -> None:
    (block,) = (example for example in examples("docs/definitions.md") if example.language == "gate")
    for line in block.text.splitlines():
        parse(line)


def test_the_templates_that_are_named_are_the_ones_there_are() -> None:
    text = (ROOT / "docs/definitions.md").read_text("utf-8")
    roots = {path.partition(".")[0] for _, path in placeholders(text)}
    assert roots == {*ROOTS, *ITEM_ROOTS, *BACK_LINK_ROOTS, "steps"}


@pytest.mark.parametrize("example", of("json"))
def test_the_scripts_that_are_shown_can_be_played(example: Example) -> None:
    match (example.file or "").rpartition("/")[2]:
        case "model.json":
            TypeAdapter(list[Rule]).validate_python(json.loads(example.text))
        case "decisions.json":
            TypeAdapter(list[ScriptedAnswer]).validate_python(json.loads(example.text))
        case _:
            assert "schemas/" in (example.file or ""), "a JSON example says which file it is"


# --- the tables of keys --------------------------------------------------------------------------------------------


def rows_below(heading: str, first_column: str = "Key") -> dict[str, list[str]]:
    """The first table below a heading that begins with this column: its rows by what their first cell names."""
    text = (ROOT / "docs/definitions.md").read_text("utf-8")
    _, found, section = text.partition(f"\n{heading}\n")
    assert found, f"no heading {heading!r}"
    lines = section[section.index(f"| {first_column} |") :].splitlines()[2:]
    rows: dict[str, list[str]] = {}
    for line in lines:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for name in re.findall(r"`(\w+)`", cells[0]):
            rows[name] = cells
    return rows


SHAPES: Mapping[str, Shape] = {
    "## The workflow": grammar.WORKFLOW,
    "### Stage": steps.STAGE,
    "### Agent step": steps.AGENT,
    "### Parallel step": steps.PARALLEL,
    "### Decision step": steps.DECISION,
    "### Manual step": steps.MANUAL,
    "### Event step": steps.EVENT,
    "### Gate step": steps.GATE,
    "### Write step": steps.WRITE,
    "### Items": steps.FOR_EACH,
    "### Time": steps.WAIT,
    "### Schedules": grammar.TRIGGERS["schedule"],
    "## Concurrency": grammar.CONCURRENCY,
    "## Sources": grammar.SOURCE,
    "## Servers": grammar.SERVER,
}


@pytest.mark.parametrize("heading", SHAPES)
def test_the_tables_have_the_keys_that_are_read(heading: str) -> None:
    rows, fields = rows_below(heading), SHAPES[heading].fields
    assert set(rows) == set(fields)
    required = {key for key, cells in rows.items() if cells[2] == "required"}
    # `kind` chooses the table that a step is checked by, so it is required where the table leaves it optional.
    assert required - {"kind"} == {key for key, wanted in fields.items() if wanted.required} - {"kind"}


@pytest.mark.parametrize(
    "heading, key, value",
    [
        ("## The workflow", "enabled", Definition.model_fields["enabled"].default),
        ("### Agent step", "agent", AgentStep.model_fields["agent"].default),
        ("### Agent step", "queue", AgentStep.model_fields["queue"].default),
        ("### Parallel step", "join", ParallelStep.model_fields["join"].default),
        ("### Items", "max_parallel", ForEach.model_fields["max_parallel"].default),
        ("### Schedules", "timezone", ScheduleTrigger.model_fields["timezone"].default),
        ("### Schedules", "overlap", ScheduleTrigger.model_fields["overlap"].default),
        ("## Concurrency", "limit", Concurrency.model_fields["limit"].default),
        ("## Concurrency", "mode", Concurrency.model_fields["mode"].default),
        ("## Sources", "signature_header", Source.model_fields["signature_header"].default),
    ],
)
def test_the_tables_have_the_defaults_of_the_model(heading: str, key: str, value: Any) -> None:
    told = rows_below(heading)[key][2]
    assert told.strip("`") == (str(value).lower() if isinstance(value, bool) else str(value))


def test_the_limits_are_those_of_the_model() -> None:
    rows, limits = rows_below("## Failures, retries, limits", "Limit"), Limits()
    assert set(rows) == set(Limits.model_fields)
    assert [rows[key][2] for key in ("max_attempts", "max_loop")] == [str(limits.max_attempts), str(limits.max_loop)]
    assert rows["wall_clock"][2] == f"`{limits.wall_clock.seconds // 3600}h`"


def test_the_closed_sets_are_told_whole() -> None:
    failures = "## Failures, retries, limits"
    assert set(rows_below(failures, "Class")) == set(get_args(FailureClass))
    assert set(rows_below(failures, "Action")) == set(get_args(FailureAction))
    assert set(rows_below("### Decision step", "Outcome")) == set(get_args(DecisionOutcome))
    judgements = tuple(outcome for outcome in get_args(DecisionOutcome) if outcome != "answer")
    assert DecisionStep.model_fields["outcomes"].default == judgements, "all four, as the table says"
    agents = re.findall(r"`(\w+)`", rows_below("### Agent step")["agent"][1])
    assert set(agents) == steps.EXECUTORS


# --- numbers and words -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "told",
    [
        f"tries again after {BACKOFF_FIRST.seconds} s, doubling up to {BACKOFF_MAX.seconds // 60} min, "
        f"each {BACKOFF_JITTER:.0%} sooner or later".replace("%", " %"),
        f"At most {EXPRESSION_CHARS_MAX:,} characters and {syntax.DEPTH_MAX} levels.",
        f"up to {TEXT_CHARS_MAX:,} characters",
        f"up to {FILE_CHARS_MAX:,} characters; a folder up to {FILES_MAX:,} files and "
        f"{DEFINITIONS_BYTES_MAX >> 10} KiB together",
        f"up to {YAML_CHARS_MAX:,} characters, {VALUES_MAX:,} keys and values, {reader.DEPTH_MAX} levels",
        f"up to {STEPS_MAX} steps and branches",
        f"up to {DURATION_MAX.days} days",
        f"more than {ITEMS_MAX} items fail the step",
        f"There are at most {VARIANTS_MAX} of them",
        f"at most `{CALL_TIMEOUT_MAX.seconds}s`",
        f"at most {OUTPUT_BYTES_MAX >> 20} MiB",
        *(f"`{form.pattern}`" for form in (KEY, ID, ROLE)),
        *(f"`{event}`" for event in sorted({*_EVENTS.values(), "issue_transitioned"})),
    ],
)
def test_the_numbers_are_those_of_the_code(told: str) -> None:
    assert told in (ROOT / "docs/definitions.md").read_text("utf-8")


def test_an_agent_is_told_what_the_document_says() -> None:
    section = (ROOT / "docs/definitions.md").read_text("utf-8").partition("## What an agent is told\n")[2]
    source = (ROOT / "libs/domain/run/programs/definition/prompt.py").read_text("utf-8")
    for heading in ("Run context", "Branch", "Output of ", "Reviewer feedback"):
        assert f"`## {heading}" in section
        assert heading in source
    for key in ("comment", "review", "revised_artefact", "previous_output"):
        assert f"`{key}`" in section
        assert f'"{key}"' in source


# --- the command line ----------------------------------------------------------------------------------------------


def test_the_exit_codes_are_told_as_they_are() -> None:
    text = (ROOT / "docs/api.md").read_text("utf-8")
    table = dict(re.findall(r"^\| (\d) \| `(\w+)` \|", text, re.MULTILINE))
    assert {int(code): name for code, name in table.items()} == {code.value: code.name.lower() for code in Exit}
