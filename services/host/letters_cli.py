"""`minutebook deadletters ...`: what they take. What they do is imported when one of them is run."""

from typing import Annotated
from uuid import UUID

import typer

from minutebook.cli.session import SESSION

JsonOption = Annotated[bool, typer.Option("--json", help="print one object and nothing else")]
LetterId = Annotated[UUID, typer.Argument(help="the letter's id")]

LISTED_MAX = 100


def list_letters(
    limit: Annotated[int, typer.Option(help="how many at most", min=1)] = LISTED_MAX, as_json: JsonOption = False
) -> None:
    """List what services gave up on, the last first."""
    from services.host.letters import list_dead_letters

    list_dead_letters(limit, as_json=as_json or SESSION.json)


def show(letter_id: LetterId, as_json: JsonOption = False) -> None:
    """Show a dead letter: what was to be done, and why it was not."""
    from services.host.letters import show_dead_letter

    show_dead_letter(letter_id, as_json=as_json or SESSION.json)


def retry(
    letter_id: Annotated[UUID | None, typer.Argument(help="the letter's id", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="all that there are")] = False,
    as_json: JsonOption = False,
) -> None:
    """Send a dead letter's message again, once what was wrong is mended. What fails again becomes a letter again."""
    from services.host.letters import retry_dead_letters

    if every == (letter_id is not None):
        raise typer.BadParameter("name one letter, or --all")
    retry_dead_letters(letter_id, as_json=as_json or SESSION.json)
