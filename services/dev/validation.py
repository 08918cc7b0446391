"""What `minutebook definitions validate` does: it checks files, and needs no server for it."""

import json
from pathlib import Path

import typer

from contracts.errors import MinutebookError
from libs.language.loader import load_folder
from minutebook.cli.session import Exit, explained
from minutebook.folder import read_folder


def check_folder(folder: Path, *, as_json: bool) -> None:
    """Print the problems of a folder of definitions, or what is in it; with problems the command is refused."""
    try:
        with explained():
            checked = load_folder(read_folder(folder))
    except MinutebookError as error:
        problems = [item.model_dump(include={"file", "line", "path", "message"}) for item in error.errors]
        if as_json:
            print(json.dumps({"ok": False, "problems": problems}))
        else:
            for problem in problems:
                print(f"{problem['file']}:{problem['line'] or 1}: {problem['path']}: {problem['message']}")
        raise typer.Exit(Exit.REFUSED) from error
    if as_json:
        print(json.dumps({"ok": True, "problems": []}))
    else:
        for bundle in checked.workflows:
            print(f"workflow {bundle.definition.id}: {bundle.hash[:12]} ok")


__all__ = ["check_folder"]
