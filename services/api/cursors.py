"""Opaque cursors: the sort key of the last item of a page. They carry no right: every query judges visibility anew."""

import base64
import binascii
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from contracts.errors import Rejected
from minutebook.models.problem import ProblemItem
from services.api.parameters import comparable

_INT_MAX: Final = 2**63 - 1


def encode(*key: datetime | UUID | int | str) -> str:
    """Return the cursor of a sort key."""
    text = json.dumps([part.isoformat() if isinstance(part, datetime) else str(part) for part in key])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(cursor: str, *kinds: Callable[[str], Any]) -> tuple[Any, ...]:
    """Return the sort key of a cursor, each part read by its kind.

    Raises:
        contracts.errors.Rejected: 422, it is not one of this list's cursors.
    """
    try:
        parts = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise ValueError("not a sort key")
        return tuple(kind(part) for kind, part in zip(kinds, parts, strict=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        item = ProblemItem(path="query.cursor", message="not a cursor of this list")
        raise Rejected(
            "cursor.invalid", "the cursor is not one that this list gave; begin without one", errors=(item,)
        ) from error


def instant(text: str) -> datetime:
    """An aware instant."""
    value = datetime.fromisoformat(text)
    if value.tzinfo is None:
        raise ValueError("an instant needs its zone")
    return comparable(value)


def count(text: str) -> int:
    """A number that a bigint holds."""
    value = int(text)
    if not 0 <= value <= _INT_MAX:
        raise ValueError("out of range")
    return value


def name(text: str) -> str:
    """A text that PostgreSQL can compare."""
    if "\x00" in text:
        raise ValueError("NUL")
    text.encode()
    return text
