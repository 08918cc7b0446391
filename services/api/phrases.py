"""Parts of sentences that facts are told in."""

from datetime import datetime
from typing import Final

from contracts.base import Actor, JsonObject

COMMENT_CHARS_MAX: Final = 300
MESSAGE_CHARS_MAX: Final = 300
KEY_CHARS_MAX: Final = 100
MATCH_CHARS_MAX: Final = 200


def by(actor: Actor | None, who: str) -> str:
    """The person that a fact names, else whoever wrote it."""
    return actor.name if actor is not None else who


def key(key: str) -> str:
    return f"the key {short(key, KEY_CHARS_MAX)!r}" if key else "the definition's one key"


def asked(match: JsonObject) -> str:
    """What an event must carry, as `name=value` of plain values."""
    told = ", ".join(f"{name}={value}" for name, value in match.items())
    return f" with {short(told, MATCH_CHARS_MAX)}" if told else ""


def nth(round_: int, number: int) -> str:
    """Which round and attempt, said only when it is not the first."""
    said = [f"round {round_}"] if round_ > 1 else []
    if number > 1:
        said.append(f"attempt {number}")
    return f" ({', '.join(said)})" if said else ""


def many(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def money(microdollars: int) -> str:
    return f"${microdollars / 1_000_000:.4f}"


def clock(at: datetime) -> str:
    return at.strftime("%H:%M:%S %Z")


def moment(at: datetime) -> str:
    """A moment that may be days away."""
    return at.strftime("%Y-%m-%d %H:%M:%S %Z")


def short(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    line = " ".join(text.split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"
