"""What `minutebook audit erase` does and prints."""

import sys
from datetime import timedelta
from typing import Final

import typer

from libs.config import Secrets, Settings
from libs.postgres.pool import APP_ROLE, open_pool
from libs.process import loop
from libs.process.tools import open_tools
from libs.sealing import Sealing
from libs.telemetry import logs
from minutebook.cli.session import Exit, fail
from services.host.erasing import Erasure, Found, erase, find, look
from services.host.explaining import explained, print_json

PATIENCE: Final = timedelta(hours=1)
"""How long one look through a part of the database may take."""

RUNS_SHOWN_MAX: Final = 10


def run_erasure(
    user: str,
    *,
    reason: str,
    group: str | None,
    look_for: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Erase, or say what there is."""
    settings = explained(Settings.read)
    secrets = Secrets(settings.secrets_dir)
    explained(Sealing(secrets).require)
    logs.configure("audit", level="error")
    if not reason.strip():
        fail("say why with --reason; it stays in the record", Exit.USAGE)

    async def work() -> Erasure:
        tools = await open_tools("api", settings, secrets)
        pool = None
        try:
            await tools.bus.start()
            pool = await open_pool(
                settings.postgres_dsn, application_name="minutebook audit", role=APP_ROLE, statement_timeout=PATIENCE
            )
            found = await find(tools, user, group=group, also=look_for)
            if dry_run:
                return await look(pool, found, _progress)
            if not yes and not found.state.active:
                _confirm(found)
            return await erase(tools, pool, found, reason=reason, progress=_progress)
        finally:
            if pool is not None:
                await pool.close()
            await tools.bus.stop()
            await tools.close()

    erasure = explained(lambda: loop.run(work()))
    if as_json:
        print_json(erasure.as_json())
    else:
        _tell(erasure)


def _confirm(found: Found) -> None:
    """Ask a person; without one there is nobody to ask."""
    if not sys.stdin.isatty():
        fail("nobody is there to ask: give --yes, or look first with --dry-run", Exit.USAGE)
    typer.confirm(f"Erase {found.state.handle} ({found.user_id}) for good?", abort=True, err=True)


def _progress(what: str) -> None:
    typer.echo(f"{what} …", err=True)


def _tell(erasure: Erasure) -> None:
    traces = erasure.traces
    texts = sum(traces.sealed.values())
    done = "erased" if erasure.done else "not erased, only looked for"
    typer.echo(f"user {erasure.user_id}: {done}")
    by_category = ", ".join(f"{category} {count}" for category, count in sorted(traces.sealed.items())) or "none"
    typer.echo(f"  sealed texts{', unreadable now' if erasure.done else ''}: {texts} ({by_category})")
    typer.echo(f"  blobs with sealed texts: {traces.sealed_blobs}")
    if erasure.done:
        typer.echo(f"  head rows rebuilt: {erasure.heads_rebuilt}; snapshots dropped: {erasure.snapshots_dropped}")
        typer.echo(f"  credentials destroyed: {erasure.credentials_destroyed}")
    if not erasure.looked_for:
        typer.echo("  nothing was known to look for in clear: name e-mail and name with --look-for")
    elif not traces.clear:
        typer.echo("  in clear: nowhere in the database")
    for place in traces.clear:
        runs = ", ".join(str(run) for run in place.runs[:RUNS_SHOWN_MAX])
        more = f" and {len(place.runs) - RUNS_SHOWN_MAX} more" if len(place.runs) > RUNS_SHOWN_MAX else ""
        typer.echo(f"  in clear: {place.table}, {place.rows} rows{f'; runs {runs}{more}' if runs else ''}")
    typer.echo("Backups, logs and what was written to other systems are outside: docs/operations.md says what to do.")
