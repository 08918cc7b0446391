"""How a command finds its server, and what its errors become."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import typer
from pydantic import BaseModel
from rich.console import Console

from minutebook.client import ApiError, Client, Unreachable
from minutebook.folder import FolderError

T = TypeVar("T")

DEV_FILE = Path(".minutebook/dev.json")
DEV_USER = "admin@example.com"


class Exit(IntEnum):
    """Exit codes, the same for every command."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    RUN_FAILED = 5


@dataclass(slots=True)
class Session:
    """What the options before the command said."""

    address: str | None = None
    user: str | None = None
    json: bool = False

    def client(self) -> Client:
        """A client of the named server, else of the one that `minutebook dev` runs in this folder."""
        key = os.environ.get("MINUTEBOOK_API_KEY")
        address = self.address or os.environ.get("MINUTEBOOK_SERVER_ADDRESS")
        if DEV_FILE.is_file() and (self.user or not key):
            dev = json.loads(DEV_FILE.read_text())
            user = self.user or DEV_USER
            key = dev["tokens"].get(user)
            if key is None:
                fail(f"{DEV_FILE} knows no user {user}; it has {', '.join(sorted(dev['tokens']))}", Exit.USAGE)
            address = address or dev["api_url"]
        if not key:
            fail(
                "no key: set MINUTEBOOK_API_KEY (and MINUTEBOOK_SERVER_ADDRESS), or run this beside `minutebook dev`",
                Exit.USAGE,
            )
        return Client(address, key)


SESSION = Session()
PIPE_COLUMNS = 200
"""Where nobody looks, lines are as long as their content: an id that is cut cannot be copied or parsed."""

out = Console(soft_wrap=True, highlight=False)
if not out.is_terminal:
    out.width = PIPE_COLUMNS
err = Console(stderr=True, soft_wrap=True, highlight=False)


def fail(message: str, code: Exit = Exit.REFUSED) -> NoReturn:
    """Say what is wrong on stderr and end."""
    err.print(f"minutebook: {message}", markup=False)
    raise typer.Exit(code)


def show(value: BaseModel | list[Any]) -> bool:
    """Print a value as JSON when `--json` was given; says whether it did."""
    if not SESSION.json:
        return False
    items = [i.model_dump(mode="json") for i in value] if isinstance(value, list) else value.model_dump(mode="json")
    out.print_json(json.dumps(items))
    return True


def call(act: Callable[[Client], Awaitable[T]]) -> T:
    """Run one conversation with the server; its errors end the command in words."""

    async def talk() -> T:
        async with SESSION.client() as client:
            return await act(client)

    with explained():
        return asyncio.run(talk())


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors into one line each and an exit code."""
    try:
        yield
    except ApiError as error:
        problem = error.problem
        for item in problem.errors:
            where = f"{item.file}:{item.line}: " if item.file else ""
            err.print(f"{where}{item.path}: {item.message}", markup=False)
        fail(f"{problem.detail} ({problem.code})", Exit.NOT_FOUND if problem.status == 404 else Exit.REFUSED)
    except Unreachable as error:
        fail(str(error), Exit.UNREACHABLE)
    except FolderError as error:
        fail(str(error), Exit.USAGE)
