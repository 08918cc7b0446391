"""How commands of whoever operates an installation end: in words, and with the exit code that fits."""

import json
from collections.abc import Callable
from typing import Final, TypeVar

import typer

from contracts.errors import MinutebookError, Unavailable
from minutebook.cli.session import Exit, fail

T = TypeVar("T")

_USAGE: Final = frozenset(
    {"settings.invalid", "service.unknown", "provision.unnamed", "sealing.key_malformed", "sealing.no_key"}
)


def explained(act: Callable[[], T]) -> T:
    """Do it; what it is refused with is said on stderr and ends the command."""
    try:
        return act()
    except MinutebookError as error:
        if error.code in _USAGE:
            code = Exit.USAGE
        elif error.status == 404:
            code = Exit.NOT_FOUND
        else:
            code = Exit.UNREACHABLE if isinstance(error, Unavailable) else Exit.REFUSED
        for item in error.errors:
            typer.echo(f"{item.path}: {item.message}", err=True)
        fail("settings are missing or wrong" if error.errors else f"{error.message} ({error.code})", code)


def print_json(value: object) -> None:
    """One value, for programs."""
    typer.echo(json.dumps(value, indent=2))
