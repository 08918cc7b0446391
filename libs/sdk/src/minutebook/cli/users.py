"""Commands on users, for administrators."""

from typing import Annotated
from uuid import UUID

import typer

from minutebook.cli.printing import moment, table
from minutebook.cli.session import Exit, call, fail, out, show
from minutebook.cli.values import request_of
from minutebook.client import Client
from minutebook.models import PersonalFact, RegisterUserRequest, UserView

users = typer.Typer(help="List, register and deactivate users.", no_args_is_help=True)

Whom = Annotated[str, typer.Argument(help="the user's email or id")]


@users.command("list")
def list_users() -> None:
    """List everybody of the tenant group."""
    found = call(_all)
    if show(found):
        return
    rows = table("USER", "NAME", "KIND", "STATE", "ROLES", "PROJECTS")
    for item in found:
        kind = item.kind.replace("_", " ")
        rows.add_row(item.email, item.name, kind, item.state, " ".join(item.roles), " ".join(item.projects))
    out.print(rows)


@users.command("add")
def add(
    email: Annotated[str, typer.Argument(help="the email that they are known by")],
    name: Annotated[str | None, typer.Option(help="their name; else the email")] = None,
    service: Annotated[
        bool, typer.Option("--service", help="a service user, which owns runs that nobody starts")
    ] = False,
    role: Annotated[list[str] | None, typer.Option(help="a role; may be repeated")] = None,
    group: Annotated[list[str] | None, typer.Option(help="a group; may be repeated")] = None,
    project: Annotated[list[str] | None, typer.Option(help="key of a project; may be repeated")] = None,
) -> None:
    """Register a person or a service user. The same again changes nothing."""
    request = request_of(
        RegisterUserRequest,
        email=email,
        name=name,
        kind="service_user" if service else "user",
        roles=role or [],
        groups=group or [],
        projects=project or [],
    )
    made = call(lambda c: c.register_user(request))
    if not show(made):
        out.print(f"{made.email} is registered: {made.user_id}", markup=False)


@users.command("deactivate")
def deactivate(user: Whom) -> None:
    """End a user for good: their tokens and grants count no more, and nothing is written for their runs."""

    async def end(client: Client) -> UserView:
        return await client.deactivate_user(await _id(client, user))

    ended = call(end)
    if not show(ended):
        out.print(f"{ended.email} was deactivated", markup=False)


@users.command("history")
def history(user: Whom) -> None:
    """Show what was changed of a user, and by whom."""

    async def read(client: Client) -> list[PersonalFact]:
        return [item async for item in client.user_history(await _id(client, user))]

    found = call(read)
    if show(found):
        return
    for item in found:
        out.print(f"{moment(item.at)} {item.actor.name}: {item.text}", markup=False)


async def _all(client: Client) -> list[UserView]:
    return [item async for item in client.users()]


async def _id(client: Client, user: str) -> UUID:
    """The id of a user who is named by it, or by email."""
    try:
        return UUID(user)
    except ValueError:
        pass
    found = next((item.user_id for item in await _all(client) if item.email == user), None)
    if found is None:
        fail(f"there is no user {user}; `minutebook users list` shows everybody", Exit.NOT_FOUND)
    return found
