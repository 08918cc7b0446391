"""How commands print for people."""

from datetime import datetime

from rich.table import Table

from minutebook.models import (
    WaitingFor,
    WaitingForDecision,
    WaitingForEvent,
    WaitingForPerson,
    WaitingForTime,
    WaitingForTurn,
)

HASH_CHARS = 12


def table(*columns: str) -> Table:
    """A table without frames. The first column is never broken: it is what one copies."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        made.add_column(column, no_wrap=number == 0)
    return made


def money(microdollars: int) -> str:
    return f"${microdollars / 1e6:.4f}"


def moment(at: datetime | None) -> str:
    """A moment on this machine's clock."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S") if at else "-"


def who_or_what(waiting: WaitingFor) -> str:
    """What goes behind `waits for`."""
    match waiting:
        case WaitingForDecision():
            return waiting.role
        case WaitingForPerson():
            return waiting.role or "its initiator"
        case WaitingForEvent():
            return f"an event of {waiting.source}"
        case WaitingForTime():
            return moment(waiting.until)
        case WaitingForTurn():
            return f"its turn under the key {waiting.key!r}, {waiting.ahead} ahead"


def where_and_how(waiting: WaitingFor) -> str:
    """What a run waits for, with what one needs to end it."""
    match waiting:
        case WaitingForDecision():
            due = f", due {moment(waiting.due_at)}" if waiting.due_at else ""
            votes = f", {waiting.approvals} of {waiting.needed} approvals" if waiting.needed > 1 else ""
            return f"waits for {waiting.role} at {waiting.step}: decision {waiting.decision_id}{votes}{due}"
        case WaitingForPerson():
            until = f", until {moment(waiting.until)}" if waiting.until else ""
            return f"waits for {who_or_what(waiting)} to complete {waiting.step}{until}"
        case WaitingForEvent():
            match = ", ".join(f"{key}={value}" for key, value in waiting.match.items())
            until = f", until {moment(waiting.until)}" if waiting.until else ""
            return f"waits for an event of {waiting.source} at {waiting.step}: {match or 'any'}{until}"
        case WaitingForTime():
            return f"waits at {waiting.step} until {moment(waiting.until)}"
        case WaitingForTurn():
            held = " ".join(map(str, waiting.held_by))
            return f"waits for {who_or_what(waiting)}; at work: {held or 'nobody'}"
