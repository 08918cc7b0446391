"""The program `minutebook`."""

from importlib.metadata import entry_points, version
from typing import Annotated

import typer

from minutebook.cli import bulk  # noqa: F401  adds itself to `runs`
from minutebook.cli.decisions import decide, decisions, inbox, tasks
from minutebook.cli.definitions import definitions
from minutebook.cli.delegations import delegations
from minutebook.cli.effects import effects
from minutebook.cli.events import events
from minutebook.cli.grants import grants
from minutebook.cli.notices import notices
from minutebook.cli.runs import runs
from minutebook.cli.schedules import schedules
from minutebook.cli.session import SESSION
from minutebook.cli.users import users

COMMANDS = "minutebook.commands"
"""The entry-point group in which a server's package offers its own commands; `group.name` goes under that group."""

GROUPS = {"audit": "Prove what the record holds.", "deadletters": "Look at what services gave up on, and have it done."}
"""What the groups are for that a server's package alone has commands in."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"minutebook {version('minutebook')}")
        raise typer.Exit


def _options(
    server: Annotated[
        str | None, typer.Option(help="address of the API; else MINUTEBOOK_SERVER_ADDRESS, else a dev server here")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--as", help="act as this seeded user of the dev server in this folder")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON and nothing else")] = False,
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")] = False,
) -> None:
    """Agent workflows that people decide on, and the record that proves it."""
    SESSION.address, SESSION.user, SESSION.json = server, user, json


def build() -> typer.Typer:
    """Assemble the command line: ours, and what other packages offer."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, callback=_options)
    groups = {
        "runs": runs,
        "definitions": definitions,
        "effects": effects,
        "events": events,
        "schedules": schedules,
        "decisions": decisions,
        "delegations": delegations,
        "notices": notices,
        "grants": grants,
        "users": users,
    }
    for offered in sorted(entry_points(group=COMMANDS), key=lambda point: point.name):
        group, _, name = offered.name.rpartition(".")
        if group and group not in groups:
            groups[group] = typer.Typer(help=GROUPS.get(group), no_args_is_help=True)
        (groups[group] if group else app).command(name)(offered.load())
    app.command("inbox")(inbox)
    app.command("decide")(decide)
    app.command("tasks")(tasks)
    for name, group_app in groups.items():
        app.add_typer(group_app, name=name)
    return app


def main() -> None:
    build()()
