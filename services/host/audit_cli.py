"""`minutebook audit ...` and `minutebook rebuild`: what they take. What they do is imported when one of them is run."""

from datetime import datetime
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from minutebook.cli.session import SESSION

JsonOption = Annotated[bool, typer.Option("--json", help="print one object and nothing else")]
PublicKeys = Annotated[
    list[str], typer.Option("--public-key", help="file with public keys that may have signed, or one in hexadecimal")
]


def seals(
    out: Annotated[
        Path | None, typer.Option("--out", help="write all seals into this file, for somebody else to keep")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the seals of the history, or write them into a file for a witness.

    The scheduler makes one every MINUTEBOOK_SEAL_SECONDS when something was written. Whoever holds a copy can tell
    later whether the record still begins with what it was: `minutebook audit verify --seals FILE`.
    """
    from services.host.audit import list_seals

    list_seals(out, as_json=as_json or SESSION.json)


def verify(
    held: Annotated[
        Path | None, typer.Option("--seals", help="seals that a witness kept: are they still true?")
    ] = None,
    public_key: PublicKeys = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Check the whole record: chains, content, head rows, snapshots, seals, and the ledger of writes.

    Says what is wrong, where and how bad, and ends with 1 when anything is. Changes nothing, and may run at any time.
    """
    from services.host.audit import verify_record

    verify_record(held, public_key, as_json=as_json or SESSION.json)


def replay(
    run_id: Annotated[UUID, typer.Argument(help="the run")],
    at: Annotated[int | None, typer.Option(help="version of its history; else the last one", min=1)] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a run as it stood at a version of its history: its steps, decisions and effects at that moment."""
    from services.host.audit import show_replay

    show_replay(run_id, at, as_json=as_json or SESSION.json)


def export(
    out: Annotated[Path, typer.Option("--out", help="the bundle to write, a .zip")],
    run: Annotated[list[UUID], typer.Option(help="only this run and what belongs to it; may be repeated")] = [],  # noqa: B006
    tenant_group: Annotated[str | None, typer.Option(help="only this tenant group, by name or id")] = None,
    since: Annotated[
        datetime | None, typer.Option(help="only streams with a fact since then, as 2026-11-29T12:00 in UTC")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write facts, content, seals and proofs into a signed bundle that others check offline, with the script in it."""
    from services.host.audit import export_bundle

    export_bundle(out, run, tenant_group, since, as_json=as_json or SESSION.json)


def rebuild(
    tenant_group: Annotated[str | None, typer.Option(help="only this tenant group, by name or id")] = None,
    stream: Annotated[list[UUID], typer.Option(help="only this stream; may be repeated")] = [],  # noqa: B006
    as_json: JsonOption = False,
) -> None:
    """Make head rows anew from the history, while the system runs. Rows that were right are the same afterwards.

    Streams whose history cannot be trusted are left as they are and named; `minutebook audit verify` says why.
    """
    from services.host.audit import rebuild_heads

    rebuild_heads(tenant_group, stream, as_json=as_json or SESSION.json)
