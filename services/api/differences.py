"""What differs between two artefacts, value by value."""

from collections.abc import Iterator
from itertools import islice, zip_longest
from typing import Final

from contracts.base import JsonValue
from minutebook.models import ArtifactChange

CHANGES_MAX: Final = 500
_NOTHING: Final = object()


def differences(before: JsonValue, after: JsonValue) -> tuple[ArtifactChange, ...]:
    """The values that differ, by dotted path, at most `CHANGES_MAX`; lists are compared place by place."""
    return tuple(islice(_changes(before, after, ""), CHANGES_MAX))


def _changes(before: object, after: object, path: str) -> Iterator[ArtifactChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            yield from _changes(before.get(key, _NOTHING), after.get(key, _NOTHING), _below(path, key))
    elif isinstance(before, list) and isinstance(after, list):
        for index, (old, new) in enumerate(zip_longest(before, after, fillvalue=_NOTHING)):
            yield from _changes(old, new, _below(path, str(index)))
    elif isinstance(before, bool) != isinstance(after, bool) or before != after:
        yield ArtifactChange.model_validate(
            {
                "path": path,
                "before": None if before is _NOTHING else before,
                "after": None if after is _NOTHING else after,
                "kind": "added" if before is _NOTHING else "removed" if after is _NOTHING else "changed",
            }
        )


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
