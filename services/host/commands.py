"""What `minutebook serve`, `migrate`, `restore` and `provision` do."""

import os
import sys
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import typer

from libs.config import Secrets, Settings
from libs.config.settings import unknown
from libs.postgres.pool import APP_ROLE, open_pool
from libs.process import loop
from libs.process.tools import open_tools
from libs.sealing import KEY_REF, Sealing
from libs.telemetry import logs, tracing
from libs.telemetry.logs import get_logger
from minutebook.cli.session import Exit, fail
from services.host.explaining import explained, print_json
from services.host.prepare import prepare
from services.host.provision import ADMINISTRATOR, Person, Provisioned, provision
from services.host.reference import as_markdown
from services.host.restore import restore
from services.host.roster import chosen
from services.host.sealing_key import SealingKey, ensure_sealing_key
from services.host.serve import serve

T = TypeVar("T")

_log = get_logger("host")


def show_settings() -> None:
    """Print docs/configuration.md."""
    sys.stdout.write(as_markdown())


def run_services(names: Sequence[str]) -> None:
    """Serve until a signal."""
    if not names:
        fail("name the services to run, or all; `minutebook serve --help` lists them", Exit.USAGE)
    settings = explained(Settings.read)
    wanted = explained(lambda: chosen(names))
    secrets = Secrets(settings.secrets_dir)
    explained(Sealing(secrets).require)
    process = wanted[0] if len(wanted) == 1 else "minutebook"
    logs.configure(process, level=settings.log_level)
    tracing.configure(process)
    for name in unknown(os.environ):
        _log.warning("unknown setting, is it misspelt", variable=name)
    try:
        _run(serve(wanted, settings, secrets))
    except Exception as error:  # a bug: said like everything else that whoever operates this reads
        if isinstance(error, typer.Exit):
            raise
        _log.exception("the process failed", error=type(error).__name__)
        raise typer.Exit(Exit.REFUSED) from None
    finally:
        tracing.shutdown()


def run_migrations(*, as_json: bool) -> None:
    """Prepare database and bus and say what was changed."""
    settings = explained(Settings.read)
    prepared = _run(prepare(settings.postgres_dsn, settings.nats_url))
    if as_json:
        print_json(
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


def run_restoring(reason: str, *, as_json: bool) -> None:
    """Begin a new era and say what was changed."""
    settings = explained(Settings.read)
    restored = _run(restore(settings.postgres_dsn, settings.nats_url, reason=reason))
    if as_json:
        print_json({"era": restored.era, "is_new": restored.is_new, "bus": list(restored.bus)})
        return
    for change in restored.changes:
        typer.echo(change)
    typer.echo("Start the services. Writes of runs that are older than this era wait in doubt for a verdict.")


def run_provisioning(
    *,
    group: str,
    tenant: str,
    key: str,
    roles: tuple[str, ...],
    person: Person | None,
    sealing_key: bool,
    as_json: bool,
) -> None:
    """Provision and show the secrets. The installation's sealing key is made first, where that is asked for."""
    settings = explained(Settings.read)
    logs.configure("provision", level="error")

    async def work() -> tuple[Provisioned, SealingKey | None]:
        secrets, sealing = Secrets(settings.secrets_dir), None
        if sealing_key:
            sealing = await _sealing_key(settings, secrets)
            if sealing.value is not None:
                secrets = Secrets(settings.secrets_dir, {KEY_REF: sealing.value})
        if person is not None:
            Sealing(secrets).require()
        tools = await open_tools("api", settings, secrets)
        try:
            await tools.bus.start()
            provisioned = await provision(
                tools.store,
                tools.bus,
                group=group,
                tenant=tenant,
                key=key,
                roles=roles or (ADMINISTRATOR,),
                person=person,
            )
            return provisioned, sealing
        finally:
            await tools.bus.stop()
            await tools.close()

    made, sealing = _run(work())
    if as_json:
        print_json(_as_json(made, sealing))
        return
    found = "was there already; a new key was minted" if made.group_existed else "is new"
    typer.echo(f"tenant group {group} ({made.tenant_group}) {found}")
    typer.echo(f"key {key}: {made.key.secret}")
    if person is not None and made.token is not None:
        typer.echo(f"token of {person.email}: {made.token.secret}")
    if sealing is not None:
        typer.echo(_told(sealing))
    typer.echo("Keep them now: they are shown this once.")


async def _sealing_key(settings: Settings, secrets: Secrets) -> SealingKey:
    pool = await open_pool(settings.postgres_dsn, application_name="minutebook provision", role=APP_ROLE)
    try:
        return await ensure_sealing_key(secrets, settings.secrets_dir, pool)
    finally:
        await pool.close()


def _as_json(made: Provisioned, sealing: SealingKey | None) -> dict[str, object]:
    return {
        "tenant_group": str(made.tenant_group),
        "tenant": str(made.tenant),
        "group_existed": made.group_existed,
        "key": {"id": str(made.key.id), "secret": made.key.secret},
        "user": str(made.user) if made.user else None,
        "token": {"id": str(made.token.id), "secret": made.token.secret} if made.token else None,
        "sealing_key": sealing
        and {
            "existed": sealing.existed,
            "path": str(sealing.path) if sealing.path else None,
            "secret": sealing.value,
        },
    }


def _told(sealing: SealingKey) -> str:
    if sealing.existed:
        return "sealing key: there is one already"
    if sealing.path is not None:
        return f"sealing key: written to {sealing.path}; every service needs it, and so does a backup"
    return f"sealing key, for the secret {KEY_REF} of every service: {sealing.value}"


def _run(work: Coroutine[Any, Any, T]) -> T:
    return explained(lambda: loop.run(work))
