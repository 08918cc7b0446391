"""What options say: pairs, JSON, moments."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from minutebook.cli.session import Exit, fail
from minutebook.models import JsonObject
from minutebook.models.base import Sent

S = TypeVar("S", bound=Sent)


def pairs(option: str, values: list[str]) -> dict[str, str]:
    """KEY=VALUE, each key once."""
    found: dict[str, str] = {}
    for value in values:
        key, sign, text = value.partition("=")
        if not sign or not key:
            fail(f"{option} takes KEY=VALUE, not {value!r}", Exit.USAGE)
        if key in found:
            fail(f"{option} names {key} twice", Exit.USAGE)
        found[key] = text
    return found


def json_value(option: str, text: str | None) -> Any:
    """JSON given on the command line, or in a file as @FILE; None without the option."""
    if text is None:
        return None
    try:
        return json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    except (OSError, ValueError) as error:
        fail(f"{option} takes JSON or @FILE: {error}", Exit.USAGE)


def json_object(option: str, text: str | None) -> JsonObject:
    """A JSON object; an empty one without the option."""
    value = json_value(option, text)
    if value is None:
        return {}
    if not isinstance(value, dict):
        fail(f"{option} takes a JSON object, not {type(value).__name__}", Exit.USAGE)
    return value


def instant(option: str, text: str | None) -> datetime | None:
    """ISO 8601, on this machine's clock where it names no zone."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        fail(f"{option} takes a moment like 2026-11-29 or 2026-11-29T12:00, not {text!r}", Exit.USAGE)


def request_of(model: type[S], **values: Any) -> S:
    """What a command sends; what cannot be right about it ends the command before anything is sent."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        fail(wrong, Exit.USAGE)
