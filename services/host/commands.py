"""What `minutebook serve`, `minutebook migrate` and `minutebook provision` do."""

import json
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

import typer

from contracts.errors import MinutebookError, Unavailable
from libs.config import Secrets, Settings
from libs.config.settings import unknown
from libs.process import loop
from libs.process.tools import open_tools
from libs.telemetry import logs, tracing
from libs.telemetry.logs import get_logger
from minutebook.cli.session import Exit, fail
from services.host.prepare import prepare
from services.host.provision import ADMINISTRATOR, Person, Provisioned, provision
from services.host.reference import as_markdown
from services.host.roster import chosen
from services.host.serve import serve

T = TypeVar("T")

_USAGE: Final = frozenset({"settings.invalid", "service.unknown", "provision.unnamed"})

_log = get_logger("host")


def show_settings() -> None:
    """Print docs/configuration.md."""
    sys.stdout.write(as_markdown())


def run_services(names: Sequence[str]) -> None:
    """Serve until a signal."""
    if not names:
        fail("name the services to run, or all; `minutebook serve --help` lists them", Exit.USAGE)
    settings = _explained(Settings.read)
    wanted = _explained(lambda: chosen(names))
    process = wanted[0] if len(wanted) == 1 else "minutebook"
    logs.configure(process, level=settings.log_level)
    tracing.configure(process)
    for name in unknown(os.environ):
        _log.warning("unknown setting, is it misspelt", variable=name)
    try:
        _run(serve(wanted, settings, Secrets(settings.secrets_dir)))
    except Exception as error:  # a bug: said like everything else that whoever operates this reads
        if isinstance(error, typer.Exit):
            raise
        _log.exception("the process failed", error=type(error).__name__)
        raise typer.Exit(Exit.REFUSED) from None
    finally:
        tracing.shutdown()


def run_migrations(*, as_json: bool) -> None:
    """Prepare database and bus and say what was changed."""
    settings = _explained(Settings.read)
    prepared = _run(prepare(settings.postgres_dsn, settings.nats_url))
    if as_json:
        _print_json(
            {
                "schema_version": prepared.schema_version,
                "migrations": list(prepared.migrations),
                "bus": list(prepared.bus),
            }
        )
        return
    for change in prepared.changes:
        typer.echo(change)
    typer.echo(f"ready: schema {prepared.schema_version}{'' if prepared.changes else ', nothing was changed'}")


def run_provisioning(
    *, group: str, tenant: str, key: str, roles: tuple[str, ...], person: Person | None, as_json: bool
) -> None:
    """Provision and show the secrets."""
    settings = _explained(Settings.read)
    logs.configure("provision", level="error")

    async def work() -> Provisioned:
        tools = await open_tools("api", settings, Secrets(settings.secrets_dir))
        try:
            await tools.bus.start()
            return await provision(
                tools.store,
                tools.bus,
                group=group,
                tenant=tenant,
                key=key,
                roles=roles or (ADMINISTRATOR,),
                person=person,
            )
        finally:
            await tools.bus.stop()
            await tools.close()

    made = _run(work())
    if as_json:
        _print_json(
            {
                "tenant_group": str(made.tenant_group),
                "tenant": str(made.tenant),
                "group_existed": made.group_existed,
                "key": {"id": str(made.key.id), "secret": made.key.secret},
                "user": str(made.user) if made.user else None,
                "token": {"id": str(made.token.id), "secret": made.token.secret} if made.token else None,
            }
        )
        return
    found = "was there already; a new key was minted" if made.group_existed else "is new"
    typer.echo(f"tenant group {group} ({made.tenant_group}) {found}")
    typer.echo(f"key {key}: {made.key.secret}")
    if person is not None and made.token is not None:
        typer.echo(f"token of {person.email}: {made.token.secret}")
    typer.echo("Keep them now: they are shown this once.")


def _run(work: Coroutine[Any, Any, T]) -> T:
    return _explained(lambda: loop.run(work))


def _explained(act: Callable[[], T]) -> T:
    """End in words and with the exit code that fits."""
    try:
        return act()
    except MinutebookError as error:
        if error.code in _USAGE:
            code = Exit.USAGE
        else:
            code = Exit.UNREACHABLE if isinstance(error, Unavailable) else Exit.REFUSED
        for item in error.errors:
            typer.echo(f"{item.path}: {item.message}", err=True)
        fail("settings are missing or wrong" if error.errors else f"{error.message} ({error.code})", code)


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))
