"""What every adapter makes of a delivery, and how it says what is missing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from contracts.base import JsonObject, JsonValue
from contracts.errors import Rejected
from libs.canonical import blob
from minutebook.models.problem import ProblemItem

EXTERNAL_ID_CHARS_MAX: Final = 200
EVENT_CHARS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Normalised:
    """One event of a source. `external_id` is the same for every delivery of it and for nothing else.

    `keys` are what matches compare and a started run gets as context; `payload` is the body as it came, or the part of
    it that its sender calls so.
    """

    event: str
    external_id: str
    keys: JsonObject
    payload: JsonObject


def incomplete(adapter: str, **missing: str) -> Rejected:
    """The refusal of a body that lacks something, by dotted path (`__` for a dot) → what is expected there."""
    items = tuple(ProblemItem(path=path.replace("__", "."), message=message) for path, message in missing.items())
    named = "; ".join(f"`{item.path}` {item.message}" for item in items)
    return Rejected("inbound.incomplete", f"the {adapter} adapter cannot read the body: {named}", errors=items)


def member(value: JsonValue, *path: str) -> JsonValue:
    """Follow keys through objects; None where they lead nowhere."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def text(value: JsonValue) -> str | None:
    """Text with something in it, or a whole number as text; else None."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip() or None if isinstance(value, str) else None


def header(headers: Mapping[str, str], name: str) -> str | None:
    """A header by its name in any case; None when it is absent or blank."""
    return next((value.strip() or None for key, value in headers.items() if key.lower() == name), None)


def bounded(external_id: str) -> str:
    """An external id of bounded length: a longer one becomes its digest, which is as stable and as distinct."""
    if len(external_id) <= EXTERNAL_ID_CHARS_MAX:
        return external_id
    return f"sha256:{blob(external_id)[0].digest}"


def identity(body: JsonObject) -> str:
    """The external id of a body that has no better one: its digest, so another order of its keys is the same."""
    return f"sha256:{blob(body)[0].digest}"


def present(keys: Mapping[str, JsonValue]) -> JsonObject:
    """What was said of these keys: those without a value are left out."""
    return {name: value for name, value in keys.items() if value is not None}
