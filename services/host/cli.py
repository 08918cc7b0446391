"""`minutebook serve`, `migrate`, `restore` and `provision`: what they take.

Every `minutebook` command reads this file to offer these. What they do is imported when one of them is run.
"""

from typing import Annotated

import typer

from minutebook.cli.session import SESSION
from services.host.reference import as_help

JsonOption = Annotated[bool, typer.Option("--json", help="print one object and nothing else")]


def serve(
    services: Annotated[
        list[str] | None,
        typer.Argument(help="planner, decision, runner, effects, ingest, scheduler, api, or all", show_default=False),
    ] = None,
    settings: Annotated[bool, typer.Option("--settings", help="print docs/configuration.md and end")] = False,
) -> None:
    from services.host.commands import run_services, show_settings

    if settings:
        show_settings()
    else:
        run_services(services or [])


serve.__doc__ = f"""Run services until a signal: each alone, several together, or all.

SIGTERM and SIGINT drain: no more is taken, what is in hand is finished or handed back, within MINUTEBOOK_DRAIN_SECONDS.
A second signal ends at once. /healthz, /readyz and /metrics are on MINUTEBOOK_OPS_HOST and MINUTEBOOK_OPS_PORT.

Settings, from the environment:

{as_help()}
"""


def migrate(as_json: JsonOption = False) -> None:
    """Make the database and the bus ready: schema, the role minutebook_app, streams and durables.

    Reads MINUTEBOOK_POSTGRES_DSN, which logs in as the owner of the schema, and MINUTEBOOK_NATS_URL. Can be run again.
    """
    from services.host.commands import run_migrations

    run_migrations(as_json=as_json or SESSION.json)


def restore(
    reason: Annotated[str, typer.Option(help="why, for the record: which backup, of which moment")],
    as_json: JsonOption = False,
) -> None:
    """Begin a new era, after the database was restored to an earlier point. Stop all services first.

    Migrates the database as `migrate` does, empties the bus, and has everything open looked at again. Writes of
    runs that are older begin in doubt: what was lost may have made them. Can be run again. Reads what `migrate` reads.
    """
    from services.host.commands import run_restoring

    run_restoring(reason, as_json=as_json or SESSION.json)


def provision(
    group: Annotated[str, typer.Option(help="tenant group: the wall between companies")],
    key: Annotated[str, typer.Option(help="name of the API key to mint")],
    tenant: Annotated[str, typer.Option(help="tenant of the group")] = "default",
    role: Annotated[
        list[str] | None, typer.Option(help="role of the key; may be repeated", show_default="platform_admin")
    ] = None,
    user: Annotated[str | None, typer.Option(help="email of a person to register, with a token")] = None,
    name: Annotated[str | None, typer.Option(help="the person's name", show_default="the email")] = None,
    roles: Annotated[str, typer.Option(help="the person's roles, with commas between")] = "",
    projects: Annotated[str, typer.Option(help="keys of the person's projects, with commas between")] = "",
    sealing_key: Annotated[
        bool,
        typer.Option(
            "--sealing-key",
            help="make the installation's sealing key too, when there is none: into MINUTEBOOK_SECRETS_DIR, or shown",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Mint a tenant group, a tenant and an API key, and register a person. Secrets are shown this once.

    The same names again find the same group and mint another key. Reads MINUTEBOOK_POSTGRES_DSN and
    MINUTEBOOK_NATS_URL.
    """
    from services.host.commands import run_provisioning
    from services.host.provision import Person

    person = None
    if user is not None:
        person = Person(email=user, name=name, roles=_list(roles), projects=_list(projects))
    elif name or roles or projects:
        raise typer.BadParameter("--name, --roles and --projects are a person's: name it with --user")
    run_provisioning(
        group=group,
        tenant=tenant,
        key=key,
        roles=tuple(role or ()),
        person=person,
        sealing_key=sealing_key,
        as_json=as_json or SESSION.json,
    )


def _list(text: str) -> tuple[str, ...]:
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)
