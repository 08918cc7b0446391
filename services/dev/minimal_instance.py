"""A small readable JSON value that a JSON Schema accepts. Pure; the same schema gives the same value.

Candidates are made from what the schema says and checked against it, in order, until one is accepted.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import islice
from typing import Any, Final

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.exceptions import Unresolvable

from contracts.base import JsonObject, JsonValue
from services.dev.pattern_text import matching_text
from services.dev.schema_folding import folded, pointed

_DEPTH_MAX: Final = 24
_STEPS_MAX: Final = 2_000
_TEXT_CHARS_MAX: Final = 10_000
_ITEMS_MAX: Final = 1_000
_BRANCHES_MAX: Final = 32
_HOPS_MAX: Final = 32

_FORMATS: Final = {
    "date": "2026-01-{:02}",
    "date-time": "2026-01-01T00:00:{:02}Z",
    "time": "00:00:{:02}Z",
    "duration": "PT{}H",
    "email": "someone{}@example.com",
    "hostname": "host{}.example.com",
    "ipv4": "192.0.2.{}",
    "ipv6": "2001:db8::{}",
    "uri": "https://example.com/{}",
    "uri-reference": "/example/{}",
    "uuid": "00000000-0000-4000-8000-{:012}",
}

_NOTHING_REMOTE: Final[Registry[Any]] = Registry()


def minimal_instance(schema: Mapping[str, Any]) -> JsonValue:
    """Return the value: required properties only, the fewest items, the first of an enumeration, true for a boolean.

    Strings say what they stand for. Where no candidate is accepted (a schema that contradicts itself, a pattern that
    is not simple, a schema that refers to itself without end) the first one is returned all the same: it fails where
    the schema is checked, with the reason.
    """
    return _Maker(schema).make(schema, "value", depth=0, nth=0)


class _Maker:
    """Makes values for the parts of one schema, with a bounded number of candidates looked at."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._steps_left = _STEPS_MAX
        self._validator = Draft202012Validator(
            {**root}, registry=_NOTHING_REMOTE, format_checker=Draft202012Validator.FORMAT_CHECKER
        )

    def make(self, schema: Any, name: str, *, depth: int, nth: int) -> JsonValue:
        """A value for a schema. `nth` tells apart the items of a list, from 0."""
        first: JsonValue = None
        for place, candidate in enumerate(self._candidates(schema, name, depth=depth, nth=nth)):
            if self._accepts(schema, candidate):
                return candidate
            first = candidate if place == 0 else first
        return first

    def _accepts(self, schema: Any, candidate: JsonValue) -> bool:
        try:
            return self._validator.evolve(schema=schema).is_valid(candidate)
        except (Unresolvable, RecursionError):
            return False

    def _candidates(self, schema: Any, name: str, *, depth: int, nth: int) -> Iterator[JsonValue]:
        for shape in islice(self._shapes(schema), _BRANCHES_MAX):
            if depth > _DEPTH_MAX or self._steps_left <= 0:
                return
            self._steps_left -= 1
            if "const" in shape:
                yield shape["const"]
            elif isinstance(choices := shape.get("enum"), list):
                yield from choices[nth:] + choices[:nth]
            else:
                if nth == 0:
                    yield from shape.get("examples", ())
                    if "default" in shape:
                        yield shape["default"]
                for kind in _types(shape):
                    yield from self._of_type(kind, shape, name, depth=depth, nth=nth)

    def _shapes(self, schema: Any, hops: int = 0) -> Iterator[Mapping[str, Any]]:
        """A schema as plain mappings: references followed, `allOf` folded in, one per way through its branches."""
        if not isinstance(schema, Mapping):
            if schema is True:
                yield {}
            return
        if self._steps_left <= 0 or hops > _HOPS_MAX:
            return
        self._steps_left -= 1
        rest = dict(schema)
        if isinstance(reference := rest.pop("$ref", None), str):
            parts = [pointed(reference, self._root)]
        elif several := rest.pop("allOf", None):
            parts = several[:1]
            rest["allOf"] = several[1:]
        elif branches := rest.pop("anyOf", None) or rest.pop("oneOf", None):
            parts = branches
        else:
            yield rest
            return
        for part in parts:
            for shape in self._shapes(part, hops + 1):
                yield from self._shapes(folded(rest, shape), hops + 1)

    def _of_type(self, kind: str, shape: Mapping[str, Any], name: str, *, depth: int, nth: int) -> Iterator[JsonValue]:
        match kind:
            case "object":
                yield self._object(shape, depth=depth, nth=nth)
            case "array":
                yield self._array(shape, name, depth=depth, nth=nth)
            case "string":
                yield from _strings(shape, name, nth)
            case "integer" | "number":
                yield from _numbers(shape, nth, whole=kind == "integer")
            case "boolean":
                yield from (True, False) if nth % 2 == 0 else (False, True)
            case _:
                yield None

    def _object(self, shape: Mapping[str, Any], *, depth: int, nth: int) -> JsonObject:
        properties = shape.get("properties", {})
        wanted = dict.fromkeys(shape.get("required", ()))
        for key in tuple(wanted):
            wanted.update(dict.fromkeys(shape.get("dependentRequired", {}).get(key, ())))
        invented = (f"key_{number}" for number in range(1, _ITEMS_MAX))
        for key in (*properties, *invented):
            if len(wanted) >= shape.get("minProperties", 0):
                break
            wanted.setdefault(key)
        others = shape.get("additionalProperties", True)
        return {key: self.make(properties.get(key, others), key, depth=depth + 1, nth=nth) for key in wanted}

    def _array(self, shape: Mapping[str, Any], name: str, *, depth: int, nth: int) -> list[JsonValue]:
        first = list(shape.get("prefixItems", ()))
        contained = [shape["contains"]] * shape.get("minContains", 1) if "contains" in shape else []
        count = max(int(shape.get("minItems", 0)), len(contained))
        items = (first[: count - len(contained)] + contained)[:_ITEMS_MAX]
        items += [shape.get("items", True)] * (min(count, _ITEMS_MAX) - len(items))
        return [
            self.make(item, name if count == 1 else f"{name} {number}", depth=depth + 1, nth=nth + number - 1)
            for number, item in enumerate(items, start=1)
        ]


def _types(shape: Mapping[str, Any]) -> list[str]:
    """The types that a shape allows, null last; what its keys speak of, when it names none."""
    declared = shape.get("type")
    if isinstance(declared, str):
        return [declared]
    if isinstance(declared, list):
        return sorted(declared, key=lambda kind: kind == "null")
    if shape.keys() & {"properties", "required", "minProperties"}:
        return ["object"]
    if shape.keys() & {"items", "prefixItems", "contains", "minItems"}:
        return ["array"]
    if shape.keys() & {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}:
        return ["number"]
    return ["string", "object", "array", "number", "boolean", "null"]


def _strings(shape: Mapping[str, Any], name: str, nth: int) -> Iterator[str]:
    least, most = int(shape.get("minLength", 0)), int(shape.get("maxLength", _TEXT_CHARS_MAX))
    text = f"Example {name.replace('_', ' ')}"
    if (form := _FORMATS.get(str(shape.get("format")))) is not None:
        yield form.format(nth + 1)
    if isinstance(pattern := shape.get("pattern"), str):
        yield text
        # One more character per item tells the items of a list apart.
        for length in (least + nth, least):
            if (made := matching_text(pattern, chars_min=length)) is not None:
                yield made
    elif len(text) <= most:
        yield text.ljust(min(least, _TEXT_CHARS_MAX), ".")
    else:
        yield (text if nth == 0 else f"{nth + 1}{text}")[:most]


def _numbers(shape: Mapping[str, Any], nth: int, *, whole: bool) -> Iterator[int | float]:
    """The numbers nearest to zero that the bounds and the step allow, from the `nth` on."""
    step = _exact(shape.get("multipleOf", 1))
    if whole:
        step = Fraction(step.numerator)
    low = _bound(shape, "minimum", "exclusiveMinimum", max)
    high = _bound(shape, "maximum", "exclusiveMaximum", min)
    if low is not None and low >= 0:
        start = -(-low // step) * step
    elif high is not None and high < 0:
        start, step = high // step * step, -step
    else:
        start = Fraction(0)
    for place in (nth, nth + 1, nth + 2, 0, 1):
        yield _plain(start + step * place)
    for place in (nth, nth + 1):  # where the bounds leave nothing above
        yield _plain(start - step * place)
    if low is not None and high is not None:
        yield _plain((low + high) / 2)


def _bound(shape: Mapping[str, Any], closed: str, opened: str, tighter: Any) -> Fraction | None:
    bounds = [_exact(shape[key]) for key in (closed, opened) if key in shape]
    return tighter(bounds) if bounds else None


def _exact(number: int | float) -> Fraction:
    return Fraction(str(number))


def _plain(number: Fraction) -> int | float:
    return int(number) if number.denominator == 1 else float(number)


__all__ = ["minimal_instance"]
