"""Commands on grants: credentials that writes bear in their user's name."""

import sys
from pathlib import Path
from typing import Annotated, NoReturn
from uuid import UUID

import typer

from minutebook.cli.printing import moment, table
from minutebook.cli.session import Exit, call, fail, out, show
from minutebook.cli.values import instant
from minutebook.client import Client
from minutebook.models import GrantView

grants = typer.Typer(help="Give, list and revoke credentials for MCP servers.", no_args_is_help=True)

Server = Annotated[str, typer.Argument(help="the MCP server's id")]
User = Annotated[str | None, typer.Option(help="email of a service user, for administrators; else yourself")]


@grants.command("give")
def give(
    server: Server,
    user: User = None,
    token_stdin: Annotated[bool, typer.Option("--token-stdin", help="read the token from standard input")] = False,
    token_file: Annotated[Path | None, typer.Option(help="read the token from a file")] = None,
    expires: Annotated[
        str | None, typer.Option(help="when it ends, as 2027-03-31 or 2027-03-31T12:00; else never")
    ] = None,
) -> None:
    """Let the runs that you own, or a service user, write to a server with this token.

    Asks for the token where neither option is given: it is never part of the command, which others can see.
    """
    ends = instant("--expires", expires)
    token = _token(stdin=token_stdin, file=token_file)
    given = call(lambda c: c.give_grant(server, token, user=user, expires_at=ends))
    if not show(given):
        until = f" until {moment(given.expires_at)}" if given.expires_at else ""
        said = f"runs of {given.user} write to {given.server} with this token{until}: grant {given.grant_id}"
        out.print(said, markup=False)


def _token(*, stdin: bool, file: Path | None) -> str:
    if stdin and file is not None:
        fail("give the token by --token-stdin or by --token-file, not by both", Exit.USAGE)
    if file is not None:
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            fail(f"--token-file {file} cannot be read: {type(error).__name__}", Exit.USAGE)
    elif stdin:
        text = sys.stdin.read()
    elif sys.stdin.isatty():
        text = typer.prompt("Token", hide_input=True)
    else:
        fail("the token comes by --token-stdin or by --token-file", Exit.USAGE)
    if not text.strip():
        fail("the token is empty", Exit.USAGE)
    return text.strip()


@grants.command("list")
def list_grants() -> None:
    """List your grants, and as an administrator everybody's. Tokens are shown to nobody."""
    found = call(_all)
    if show(found):
        return
    if not found:
        out.print("No grants.")
        return
    rows = table("GRANT", "SERVER", "USER", "STATE", "GIVEN", "BY", "UNTIL")
    for item in found:
        given, until = moment(item.given_at), moment(item.expires_at)
        rows.add_row(str(item.grant_id), item.server, item.user, item.state, given, item.given_by.name, until)
    out.print(rows)


@grants.command("revoke")
def revoke(
    grant: Annotated[str, typer.Argument(help="the grant's id, or its server's")],
    user: Annotated[str | None, typer.Option(help="whose grant for the server; else your own")] = None,
) -> None:
    """End a grant: no write that begins from now on is made with it, and the token is deleted."""

    async def end(client: Client) -> GrantView | None:
        grant_id = grant if _is_id(grant) else await _named(client, grant, user)
        return None if grant_id is None else await client.revoke_grant(grant_id)

    ended = call(end)
    if ended is None:
        _not_there(grant, user)
    if not show(ended):
        out.print(f"{ended.user} has no grant for {ended.server} any more", markup=False)


async def _all(client: Client) -> list[GrantView]:
    return [item async for item in client.grants()]


async def _named(client: Client, server: str, user: str | None) -> UUID | None:
    """The grant of a user for a server."""
    whose = user or (await client.me()).name
    return next((item.grant_id for item in await _all(client) if (item.server, item.user) == (server, whose)), None)


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _not_there(grant: str, user: str | None) -> NoReturn:
    whose = f"{user} has" if user else "you have"
    fail(f"{whose} no grant for {grant}; `minutebook grants list` shows what there is", Exit.NOT_FOUND)
