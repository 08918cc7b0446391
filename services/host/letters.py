"""What `minutebook deadletters ...` does."""

from typing import Any, Final
from uuid import UUID

import typer

from contracts.errors import Rejected
from libs.bus.jetstream import JetStreamBus
from libs.bus.port import Bus, Message
from libs.eventstore.letters import DeadLetter, PostgresLetters
from libs.ids import mint
from minutebook.cli.printing import moment, table
from minutebook.cli.session import Exit, fail, out
from services.host.explaining import print_json
from services.host.record import Opened, with_record

PAGE: Final = 200


def list_dead_letters(limit: int, *, as_json: bool) -> None:
    """Print letters, the last first."""
    found = with_record(lambda record: PostgresLetters(record.pool).read(limit=limit))
    if as_json:
        print_json([_as_json(letter) for letter in found])
        return
    if not found:
        out.print("No dead letters.")
        return
    rows = table("LETTER", "DURABLE", "SUBJECT", "CODE", "TRIES", "LAST")
    for letter in found:
        rows.add_row(
            str(letter.id), letter.durable, letter.subject, letter.code, str(letter.tries), moment(letter.last_at)
        )
    out.print(rows)


def show_dead_letter(letter_id: UUID, *, as_json: bool) -> None:
    """Print one letter with its message."""
    (letter,) = with_record(lambda record: _named(PostgresLetters(record.pool), letter_id))
    if as_json:
        print_json(_as_json(letter))
        return
    out.print(f"[bold]{letter.subject}[/bold] for {letter.durable}, given up by {letter.service}")
    out.print(f"{letter.code}: {letter.message}", markup=False)
    out.print(f"{letter.tries} tries, {moment(letter.first_at)} to {moment(letter.last_at)}")
    if letter.stream_id is not None:
        out.print(f"stream {letter.stream_id} of tenant group {letter.tenant_group}")
    out.print(_text(letter.data), markup=False)


def retry_dead_letters(letter_id: UUID | None, *, as_json: bool) -> None:
    """Send one letter, or all that there are now, again."""

    async def work(record: Opened) -> list[UUID]:
        if not record.nats_url:
            fail("which bus? Set MINUTEBOOK_NATS_URL", Exit.USAGE)
        bus = JetStreamBus(record.nats_url, name="deadletters")
        await bus.start()
        try:
            return await send_again(PostgresLetters(record.pool), bus, letter_id)
        finally:
            await bus.stop()

    sent = with_record(work)
    if as_json:
        print_json({"sent": [str(id_) for id_ in sent]})
    else:
        typer.echo(f"{len(sent)} sent again")


async def send_again(letters: PostgresLetters, bus: Bus, letter_id: UUID | None) -> list[UUID]:
    """Publish letters and then forget them: one that is published twice is done once. Returns which.

    Those that come meanwhile, as when the same fails again, are left.

    Raises:
        contracts.errors.Rejected: 404 ``dead_letter.not_found``.
        contracts.errors.Unavailable: the database or the bus does not answer; what was not forgotten is still there.
    """
    sent: list[UUID] = []
    page = await letters.read(limit=PAGE) if letter_id is None else await _named(letters, letter_id)
    while page:
        await bus.publish([_message(letter) for letter in page])
        await letters.drop(page)
        sent += [letter.id for letter in page]
        if letter_id is not None:
            break
        page = await letters.read(limit=PAGE, after=(page[-1].last_at, page[-1].id))
    return sent


async def _named(letters: PostgresLetters, letter_id: UUID) -> list[DeadLetter]:
    found = await letters.read(ids=[letter_id], limit=1)
    if not found:
        raise Rejected("dead_letter.not_found", f"there is no dead letter {letter_id}", status=404)
    return found


def _message(letter: DeadLetter) -> Message:
    """Under an id of its own: the dedupe window may still know the first one's."""
    return Message(subject=letter.subject, data=letter.data, id=f"dead_letter.{letter.id}.{mint()}")


def _as_json(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": str(letter.id),
        "tenant_group": None if letter.tenant_group is None else str(letter.tenant_group),
        "service": letter.service,
        "durable": letter.durable,
        "subject": letter.subject,
        "stream_id": None if letter.stream_id is None else str(letter.stream_id),
        "code": letter.code,
        "message": letter.message,
        "tries": letter.tries,
        "first_at": letter.first_at.isoformat(),
        "last_at": letter.last_at.isoformat(),
        "letter": _text(letter.data),
    }


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")
