"""The smallest readable JSON value that a JSON Schema accepts. Pure; the same schema gives the same value."""

import re
from collections.abc import Mapping
from typing import Any, Final

from contracts.base import JsonObject, JsonValue

_DEPTH_MAX: Final = 24
_STEPS_MAX: Final = 500
_TEXT_CHARS_MAX: Final = 10_000

_FORMATS: Final = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "PT1H",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uri-reference": "/example",
    "uuid": "00000000-0000-4000-8000-000000000000",
}

_GUESSES: Final = (
    "example",
    "Example",
    "EXAMPLE",
    "EX-1",
    "ex-1",
    "1",
    "1.0.0",
    "v1.0.0",
    "2026-01-01",
    "a",
    "A",
    "0" * 40,
)
"""Tried in turn against a `pattern`: one that needs something stranger gets an answer that its schema refuses."""


def minimal_instance(schema: Mapping[str, Any]) -> JsonValue:
    """Return the value: required properties only, the fewest items, the first of an enumeration, true for a boolean.

    Strings say what they stand for. Bounds, `const`, `enum`, `examples`, `default`, formats, local references and the
    first branch of `anyOf` and `oneOf` are kept to; `not`, `if` and the like are not looked at. A schema that refers
    to itself without end gets null where the patience for it ends.
    """
    return _Maker(schema).make(schema, "value", depth=0)


class _Maker:
    """Makes values for the parts of one schema, with a bounded number of references and combinations followed."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._steps_left = _STEPS_MAX

    def make(self, schema: Any, name: str, *, depth: int) -> JsonValue:
        if not isinstance(schema, Mapping) or depth > _DEPTH_MAX:
            return None
        schema = self._resolved(schema)
        if "const" in schema:
            return schema["const"]  # type: ignore[no-any-return]
        for key in ("enum", "examples"):
            if isinstance(schema.get(key), list) and schema[key]:
                return schema[key][0]  # type: ignore[no-any-return]
        if "default" in schema:
            return schema["default"]  # type: ignore[no-any-return]
        match _type(schema):
            case "object":
                return self._object(schema, depth=depth)
            case "array":
                return self._array(schema, name, depth=depth)
            case "string":
                return _string(schema, name)
            case "integer":
                return int(_number(schema))
            case "number":
                return _number(schema)
            case "boolean":
                return True
            case _:
                return None

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Follow local references and fold in `allOf` and the first branch of `anyOf` or `oneOf`."""
        merged = dict(schema)
        while self._steps_left > 0:
            self._steps_left -= 1
            if isinstance(reference := merged.pop("$ref", None), str):
                _fold(merged, _pointed(reference, self._root))
            elif isinstance(parts := merged.pop("allOf", None), list):
                for part in parts:
                    _fold(merged, self._resolved(part) if isinstance(part, Mapping) else {})
            elif choices := merged.pop("anyOf", None) or merged.pop("oneOf", None):
                _fold(merged, choices[0] if isinstance(choices[0], Mapping) else {})
            else:
                break
        return merged

    def _object(self, schema: Mapping[str, Any], *, depth: int) -> JsonObject:
        properties = schema.get("properties") or {}
        wanted = list(schema.get("required") or ())
        missing = max(0, schema.get("minProperties", 0) - len(wanted))
        wanted += [key for key in properties if key not in wanted][:missing]
        return {key: self.make(properties.get(key, {}), key, depth=depth + 1) for key in wanted}

    def _array(self, schema: Mapping[str, Any], name: str, *, depth: int) -> list[JsonValue]:
        count = max(schema.get("minItems", 0), 1 if "contains" in schema else 0)
        rest = schema.get("contains", schema.get("items", {}))
        items = [*(schema.get("prefixItems") or ()), *[rest] * count][:count]
        values = [
            self.make(item, name if count == 1 else f"{name} {number}", depth=depth + 1)
            for number, item in enumerate(items, start=1)
        ]
        return _told_apart(values) if schema.get("uniqueItems") else values


def _told_apart(values: list[JsonValue]) -> list[JsonValue]:
    """Numbers would all be the same one; strings carry their place already."""
    return [
        value + place if isinstance(value, int) and not isinstance(value, bool) else value
        for place, value in enumerate(values)
    ]


def _fold(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if key == "required" and key in into:
            into[key] = [*into[key], *(item for item in value if item not in into[key])]
        elif key == "properties" and key in into:
            into[key] = {**value, **into[key]}
        else:
            into.setdefault(key, value)


def _pointed(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part:
            found = found.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, Mapping) else {}
    return found if isinstance(found, Mapping) else {}


def _type(schema: Mapping[str, Any]) -> str:
    declared = schema.get("type")
    if isinstance(declared, list):
        return str(next((kind for kind in declared if kind != "null"), "null"))
    if isinstance(declared, str):
        return declared
    if "properties" in schema or "required" in schema:
        return "object"
    return "array" if {"items", "prefixItems", "contains"} & schema.keys() else "string"


def _string(schema: Mapping[str, Any], name: str) -> str:
    if (known := _FORMATS.get(str(schema.get("format")))) is not None:
        return known
    text = f"Example {name.replace('_', ' ')}"
    if isinstance(pattern := schema.get("pattern"), str):
        text = _guess(pattern, text)
    least, most = int(schema.get("minLength", 0)), int(schema.get("maxLength", _TEXT_CHARS_MAX))
    return text.ljust(least, ".")[:most]


def _guess(pattern: str, text: str) -> str:
    try:
        return next((guess for guess in (text, *_GUESSES) if re.search(pattern, guess)), text)
    except re.error:
        return text  # JSON Schema's expressions are another dialect's


def _number(schema: Mapping[str, Any]) -> int | float:
    """The number nearest to zero that the bounds and the step allow."""
    step = schema.get("multipleOf", 1)
    low, high = schema.get("minimum"), schema.get("maximum")
    if (above := schema.get("exclusiveMinimum")) is not None:
        low = above + step if low is None else max(low, above + step)
    if (below := schema.get("exclusiveMaximum")) is not None:
        high = below - step if high is None else min(high, below - step)
    if low is not None and low > 0:
        return -(-low // step) * step  # type: ignore[no-any-return]
    if high is not None and high < 0:
        return high // step * step  # type: ignore[no-any-return]
    return 0


__all__ = ["minimal_instance"]
