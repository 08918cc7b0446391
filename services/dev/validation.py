"""What `minutebook definitions validate` and `schema` do: they look at files, and need no server for it."""

import json
from pathlib import Path

import typer

from contracts.errors import MinutebookError
from libs.language.loader import load_folder
from libs.language.published import FileKind, published_schema
from minutebook.cli.session import Exit, fail
from minutebook.folder import FolderError, read_folder


def check_folder(folder: Path, *, as_json: bool) -> None:
    """Print the problems of a folder of definitions, or what is in it; with problems the command is refused."""
    problems: list[dict[str, str | int | None]] = []
    checked = None
    try:
        checked = load_folder(read_folder(folder))
    except FolderError as error:
        if not as_json or not error.file:
            fail(str(error), Exit.USAGE)
        problems = [{"file": error.file, "line": None, "path": "", "message": str(error)}]
    except MinutebookError as error:
        problems = [item.model_dump(include={"file", "line", "path", "message"}) for item in error.errors]
    if as_json:
        print(json.dumps({"ok": not problems, "problems": problems}))
    elif checked is None:
        for problem in problems:
            print(f"{problem['file']}:{problem['line'] or 1}: {problem['path']}: {problem['message']}")
    elif not (checked.workflows or checked.sources or checked.servers or checked.channels):
        print(
            f"{folder} declares nothing: it has no workflows/<id>/workflow.yaml, sources.yaml, mcp/<server>.yaml or "
            "channels.yaml"
        )
    else:
        for bundle in checked.workflows:
            print(f"workflow {bundle.definition.id}: {bundle.hash[:12]} ok")
    if problems:
        raise typer.Exit(Exit.REFUSED)


def print_schema(kind: FileKind) -> None:
    """Print the JSON Schema of one kind of file."""
    print(json.dumps(published_schema(kind), indent=2))


__all__ = ["check_folder", "print_schema"]
