"""Commands on delegations: who lets whom decide in their place."""

from typing import Annotated

import typer

from minutebook.cli.printing import moment, table
from minutebook.cli.session import Exit, call, fail, out, show
from minutebook.cli.values import instant, request_of
from minutebook.client import Client
from minutebook.models import DelegateRequest, DelegationView

delegations = typer.Typer(help="Let others decide in your place, for a time.", no_args_is_help=True)


@delegations.command("list")
def list_delegations() -> None:
    """List who lets whom decide: from and to you, for administrators everybody's."""

    async def read(client: Client) -> list[DelegationView]:
        return [item async for item in client.delegations()]

    found = call(read)
    if show(found):
        return
    if not found:
        out.print("Nobody lets you decide for them, and you let nobody.")
        return
    rows = table("DELEGATION", "FROM", "TO", "STARTS", "ENDS", "ROLES", "STATE")
    for item in found:
        rows.add_row(
            str(item.delegation_id),
            item.from_user.email or str(item.from_user.id),
            item.to_user.email or str(item.to_user.id),
            moment(item.starts_at),
            moment(item.ends_at),
            " ".join(item.roles) or "all",
            item.state.replace("_", " "),
        )
    out.print(rows)


@delegations.command("add")
def add(
    to: Annotated[str, typer.Argument(help="whom to let decide, by email or id")],
    until: Annotated[str, typer.Option(help="when it ends, such as 2026-12-24 or 2026-12-24T18:00")],
    starts: Annotated[str | None, typer.Option("--from", help="when it starts; else now")] = None,
    role: Annotated[list[str] | None, typer.Option(help="only under this workflow role; may be repeated")] = None,
    of: Annotated[str | None, typer.Option("--of", help="in whose place; for administrators")] = None,
) -> None:
    """Let a person decide in your place until a moment."""
    ends_at = instant("--until", until)
    if ends_at is None:
        fail("--until takes a moment", Exit.USAGE)
    request = request_of(
        DelegateRequest,
        to_user=to,
        from_user=of,
        starts_at=instant("--from", starts),
        ends_at=ends_at,
        roles=role or [],
    )
    made = call(lambda c: c.delegate(request))
    if not show(made):
        out.print(
            f"{made.to_user.email} may decide for {made.from_user.email} until {moment(made.ends_at)}: "
            f"{made.delegation_id}",
            markup=False,
        )


@delegations.command("end")
def end(delegation_id: Annotated[str, typer.Argument(help="the delegation's id, from `delegations list`")]) -> None:
    """End a delegation before its time."""
    ended = call(lambda c: c.end_delegation(delegation_id))
    if not show(ended):
        out.print(f"{ended.to_user.email} does not decide for {ended.from_user.email} any more", markup=False)
