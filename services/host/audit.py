"""What `minutebook audit ...` and `minutebook rebuild` do. They talk to the database and to nothing else."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import typer

from contracts import ids
from contracts.errors import Rejected
from libs.audit import witness
from libs.audit.exporting import Scope, export
from libs.audit.findings import Progress, silent
from libs.audit.merkle import Tree
from libs.audit.replaying import Replayed, replay
from libs.audit.seals import leaves_of, seals_of
from libs.audit.signing import KEY_REF, Keyring, signing_key
from libs.audit.verification import Report, check_record
from libs.domain.categories import CATEGORIES
from libs.eventstore.rebuild import rebuild
from libs.postgres.pool import fetchrow
from minutebook.cli.session import Exit, out
from services.host.explaining import print_json
from services.host.record import Opened, with_record


def list_seals(out_file: Path | None, *, as_json: bool) -> None:
    """List the seals, or write them into a file."""

    async def work(record: Opened) -> list[dict[str, Any]]:
        found = await seals_of(record.pool)
        if out_file is not None:
            tree = Tree([leaf.hash async for leaf in leaves_of(record.pool, below=found[-1].size if found else 0)])
            _write(out_file, witness.written(found, Keyring.of(record.secrets).keys.values(), tree))
        return [{**seal.said(), "signature": seal.signature.hex()} for seal in found]

    found = with_record(work)
    if as_json:
        print_json(found)
        return
    if not found:
        typer.echo(f"no seals: the leading scheduler makes them when there is a secret {KEY_REF}")
    elif out_file is not None:
        typer.echo(f"{len(found)} seals, the newest of {found[-1]['sealed_at']}, are in {out_file}")
    else:
        for seal in found:
            typer.echo(f"{seal['number']:>6}  {seal['sealed_at']}  {seal['size']:>9} leaves  {seal['root']}")


def verify_record(held: Path | None, public_keys: Sequence[str], *, as_json: bool) -> None:
    """Check the record and say what is wrong with it."""
    told = _Told() if not as_json and sys.stderr.isatty() else None

    async def work(record: Opened) -> Report:
        kept = None if held is None else witness.read(_read(held))
        ring = Keyring.of(record.secrets, *(_key_text(text) for text in public_keys))
        progress: Progress = silent if told is None else told
        return await check_record(record.pool, ring, witness=kept, mapper=record.mapper(), progress=progress)

    report = with_record(work)
    if told is not None:
        told.clear()
    if as_json:
        print_json(report.as_json())
    else:
        _print_report(report)
    if not report.ok:
        raise typer.Exit(Exit.REFUSED)


def show_replay(run_id: UUID, at: int | None, *, as_json: bool) -> None:
    """Show a run as it stood."""
    found = with_record(lambda record: replay(record.pool, run_id, at=at, mapper=record.mapper()))
    if as_json:
        print_json(found.as_json())
    else:
        _print_replay(found)


def export_bundle(
    out_file: Path, runs: Sequence[UUID], tenant_group: str | None, since: datetime | None, *, as_json: bool
) -> None:
    """Write a bundle and say what is in it."""
    scope = Scope(
        runs=tuple(runs),
        tenant_group=_group(tenant_group),
        since=since if since is None or since.tzinfo else since.replace(tzinfo=UTC),
    )

    async def work(record: Opened) -> dict[str, Any]:
        key = signing_key(record.secrets)
        if key is None:
            raise Rejected(
                "seals.no_key",
                f"a bundle is signed, and there is no key: set MINUTEBOOK_SECRET_{KEY_REF.upper()}, or put the file "
                f"{KEY_REF!r} into MINUTEBOOK_SECRETS_DIR",
            )
        row = await fetchrow(record.pool, "select minutebook_now() as now")
        assert row is not None, "one row"
        ring = Keyring.of(record.secrets)
        made = await export(record.pool, out_file, scope=scope, key=key, ring=ring, now=row["now"])
        return {
            "file": str(out_file),
            "sha256": made.sha256,
            "public_key": key.public.hex(),
            "streams": made.streams,
            "facts": made.facts,
            "blobs": made.blobs,
            "blobs_missing": made.missing,
            "seals": made.seals,
        }

    made = with_record(work)
    if as_json:
        print_json(made)
        return
    typer.echo(f"{out_file}: {made['facts']} facts of {made['streams']} streams, {made['blobs']} blobs")
    if made["blobs_missing"]:
        typer.echo(f"{made['blobs_missing']} blobs that facts name are not in the database")
    typer.echo(f"SHA-256 {made['sha256']}\nsigned by {made['public_key']}")
    typer.echo("unpack it anywhere and run: python verify.py --key " + made["public_key"])


def rebuild_heads(tenant_group: str | None, streams: Sequence[UUID], *, as_json: bool) -> None:
    """Make head rows anew, and name those that were left."""
    made = with_record(
        lambda record: rebuild(
            record.pool,
            CATEGORIES,
            tenant_group=_group(tenant_group),
            stream_ids=list(streams) or None,
            mapper=record.mapper(),
        )
    )
    if as_json:
        print_json({"streams": made.streams, "skipped": [str(stream) for stream in made.skipped]})
    else:
        typer.echo(f"{made.streams} head rows are as the history says")
        for stream in made.skipped:
            typer.echo(f"left as it is, its history cannot be trusted: {stream}", err=True)
    if made.skipped:
        raise typer.Exit(Exit.REFUSED)


class _Told:
    """Progress on one line of a terminal."""

    def __call__(self, what: str, done: int) -> None:
        sys.stderr.write(f"\r\x1b[K{done} {what}")
        sys.stderr.flush()

    def clear(self) -> None:
        sys.stderr.write("\r\x1b[K")


def _print_report(report: Report) -> None:
    for finding in report.findings:
        where = f"{finding.category or 'stream'} {finding.stream_id}: " if finding.stream_id else ""
        typer.echo(f"{finding.grade.upper():<9} {finding.part}: {where}{finding.detail}")
    last = report.sealed.last
    sealed = f"{report.sealed.seals} seals, the newest of {last.sealed_at:%Y-%m-%d %H:%M:%S}" if last else "no seals"
    typer.echo(f"{report.events} facts of {report.streams} streams, {report.effects} effects, {sealed}")
    typer.echo("the record holds" if report.ok else f"{len(report.findings)} findings: the record does NOT hold")


def _print_replay(found: Replayed) -> None:
    state, fact = found.state, found.fact
    out.print(
        f"[bold]{state.definition_id}[/bold] {found.run_id}  version {found.version} of {found.versions}:"
        f" {fact.type} by {fact.metadata.actor.name}, {fact.recorded_at:%Y-%m-%d %H:%M:%S.%f} UTC"
    )
    out.print(
        f"{state.status}{f', {state.outcome}' if state.outcome else ''}{f': {state.reason}' if state.reason else ''}"
    )
    for key, step in state.steps.items():
        outcome = f", {step.outcome}" if step.outcome else ""
        out.print(f"  {key}: {step.status}{outcome} (round {step.round}, attempts {step.attempts})", markup=False)
    for child in found.children:
        out.print(f"  {child.category} {child.stream_id} at {child.version}: {child.state.status}", markup=False)
    if found.broken:
        out.print(f"its chain does not hold: {found.broken}", markup=False)


def _group(text: str | None) -> UUID | None:
    """A tenant group by its id, or by its name."""
    if text is None:
        return None
    try:
        return UUID(text)
    except ValueError:
        return ids.tenant_group(text)


def _key_text(text: str) -> str:
    path = Path(text)
    return path.read_text() if path.is_file() else text


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Rejected("file.unreadable", f"{path} cannot be read: {error.strerror}") from None


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise Rejected("file.unwritable", f"{path} cannot be written: {error.strerror}") from None
