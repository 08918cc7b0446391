"""Dotted paths into JSON: `findings.items.0.severity`."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from contracts.base import JsonValue


class Missing(Enum):
    """Stands for a path that leads nowhere, which null does not."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


def resolve(path: str, value: JsonValue | Mapping[str, Any]) -> JsonValue | Missing:
    """Follow a dotted path; a number counts a list's elements from 0. Returns `MISSING` where it leads nowhere."""
    found: Any = value
    for segment in path.split("."):
        if isinstance(found, Mapping) and segment in found:
            found = found[segment]
        elif isinstance(found, list) and segment.isascii() and segment.isdigit() and len(segment) < 10:
            index = int(segment)
            if index >= len(found):
                return MISSING
            found = found[index]
        else:
            return MISSING
    return found  # type: ignore[no-any-return]  # an element of JSON is JSON
