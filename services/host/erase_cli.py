"""`minutebook audit erase`: what it takes. What it does is imported when it is run."""

from typing import Annotated

import typer

from minutebook.cli.session import SESSION


def erase(
    user: Annotated[str, typer.Argument(help="e-mail or id of a deactivated user")],
    reason: Annotated[str, typer.Option(help="why; it stays in the record, so it should not name the person")],
    group: Annotated[str | None, typer.Option(help="their tenant group, where several have such an e-mail")] = None,
    look_for: Annotated[
        list[str] | None, typer.Option(help="another text that names them, to be looked for in clear; may be repeated")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what there is and change nothing")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one object and nothing else")] = False,
) -> None:
    """Erase a person from the record, for good, and tell where they still stand in clear.

    Their names, e-mail addresses and comments become unreadable: the key is destroyed that they are sealed under. Every
    digest stays as it was. It can be run again: it goes on where it was interrupted.

    Reads MINUTEBOOK_POSTGRES_DSN, MINUTEBOOK_NATS_URL and the secret sealing_key. Exit code 0 also when places in clear
    are left, which are for a person to judge.
    """
    from services.host.erase_command import run_erasure

    run_erasure(
        user,
        reason=reason,
        group=group,
        look_for=tuple(look_for or ()),
        dry_run=dry_run,
        yes=yes,
        as_json=as_json or SESSION.json,
    )
