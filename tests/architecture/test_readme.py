"""What the README shows works: its definition is one, its commands exist with their options, its blocks parse."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from ruamel.yaml import YAML
from typer._click.core import Command

from libs.language.loader import load_folder
from minutebook.cli.main import build

README = Path(__file__).parents[2] / "README.md"
TEXT = README.read_text()
FENCED = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.M | re.S)
NAMED = dict(re.findall(r"^`mine/([^`]+)`:\n\n```\w+\n(.*?)^```$", TEXT, re.M | re.S))


def commands() -> Iterator[tuple[str, ...]]:
    """The arguments of every `minutebook ...` that the README tells its reader to type."""
    indented = [line.strip() for line in TEXT.splitlines() if line.startswith("    ")]
    inline = re.findall(r"`(minutebook [^`]+)`", TEXT)
    for line in (*indented, *inline):
        for part in line.split("&&"):
            words = shlex.split(part)
            if words and words[0].rpartition("/")[2] == "minutebook":
                yield tuple(words[1:])


COMMANDS = sorted(set(commands()))


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_commands_exist_with_their_options(arguments: tuple[str, ...]) -> None:
    command: Command | None = typer.main.get_command(build())
    context = None
    rest = list(arguments)
    while True:
        assert command is not None
        context = command.make_context(command.name, rest, parent=context)
        if not isinstance(command, typer.core.TyperGroup):
            break
        _, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])


def test_there_are_commands_to_try() -> None:
    first_words = {next(word for word in words if not word.startswith("-") and "@" not in word) for words in COMMANDS}
    assert {"demo", "dev", "runs", "inbox", "decide", "definitions"} <= first_words


def test_its_definition_is_one() -> None:
    assert len(NAMED) == 3
    (bundle,) = load_folder(NAMED).workflows
    assert bundle.definition.id == "release-note"
    assert bundle.prompts.keys() | bundle.schemas.keys() == {"prompts/draft.md", "schemas/note.json"}


def test_its_starts_have_the_context_that_their_definition_requires() -> None:
    shipped = README.parent / "definitions"
    files = {str(path.relative_to(shipped)): path.read_text() for path in shipped.rglob("*") if path.is_file()}
    folders = [load_folder({k: v for k, v in files.items() if "/demo/" not in k}), load_folder(NAMED)]
    required = {b.definition.id: set(b.definition.required_context) for f in folders for b in f.workflows}
    starts = [words for words in COMMANDS if "start" in words]
    assert starts
    for words in starts:
        definition = words[words.index("start") + 1]
        given = {words[n + 1].partition("=")[0] for n, word in enumerate(words) if word == "-c"}
        assert required[definition] <= given, f"`{' '.join(words)}` is refused: {required[definition] - given} missing"
        # The people who are to decide must see the run: the seeded ones by its project.
        assert "--project" in words, f"`{' '.join(words)}` starts a run that nobody else sees"


@pytest.mark.parametrize(("language", "block"), FENCED, ids=lambda part: part[:20].strip().partition("\n")[0])
def test_blocks_parse(language: str, block: str) -> None:
    match language:
        case "json":
            assert isinstance(json.loads(block), dict)
        case "yaml":
            read: Any = YAML(typ="safe").load(block)
            assert isinstance(read, dict)
        case "markdown" | "mermaid":
            assert block.strip()
        case _:
            pytest.fail(f"nobody checks blocks of {language}")
