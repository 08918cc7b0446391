"""JSON Schemas as one mapping: where two apply to the same value, the keywords of both in one."""

from collections.abc import Callable, Mapping
from typing import Any, Final


def pointed(reference: str, root: Mapping[str, Any]) -> Any:
    """The part of `root` that a local reference names; true, which accepts anything, where it names nothing."""
    found: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part:
            found = found.get(part.replace("~1", "/").replace("~0", "~"), True) if isinstance(found, Mapping) else True
    return found


def folded(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Both schemas as one: the tighter bound, all that is required, what both enumerate. `one` wins elsewhere."""
    both = {**other, **one}
    for key in one.keys() & other.keys():
        if key in _FOLDS:
            both[key] = _FOLDS[key](one[key], other[key])
    return both


def _properties(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    shared = {key: {"allOf": [one[key], other[key]]} for key in one.keys() & other.keys()}
    return {**other, **one, **shared}


def _types(one: Any, other: Any) -> list[str]:
    first, second = (kind if isinstance(kind, list) else [kind] for kind in (one, other))
    if "number" in second:
        second = [*second, "integer"]
    return [kind for kind in [*first, *(["integer"] if "number" in first else [])] if kind in second] or first


_FOLDS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "minimum": max,
    "exclusiveMinimum": max,
    "minLength": max,
    "minItems": max,
    "minProperties": max,
    "maximum": min,
    "exclusiveMaximum": min,
    "maxLength": min,
    "maxItems": min,
    "maxProperties": min,
    "required": lambda one, other: [*one, *(key for key in other if key not in one)],
    "enum": lambda one, other: [value for value in one if value in other] or one,
    "properties": _properties,
    "type": _types,
}

__all__ = ["folded", "pointed"]
