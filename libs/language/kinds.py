"""Mappings whose `kind` says which keys they have, and what events are matched with."""

from collections.abc import Mapping
from typing import Any, Final

from contracts.base import JsonObject, JsonValue
from libs.language import nodes
from libs.language.scalars import MATCH_KEY, PATH, json_value, one_of
from libs.language.shapes import (
    REFUSED,
    Check,
    Checked,
    Field,
    Place,
    Refused,
    Shape,
    check,
    fill,
    refuse,
    table,
)

CONTEXT: Final = "$context."
"""Begins a text in the match of an event step that stands for a value of the run's context."""


def by_kind(shapes: Mapping[str, Shape]) -> Check:
    """A mapping with the shape of its kind. Of an unknown kind only the key is read."""
    kinds = one_of(frozenset(shapes))
    nameless = Shape({"kind": Field(kinds, required=True)})
    branches: list[JsonValue] = [
        {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": _branch(kind, shape)}
        for kind, shape in shapes.items()
    ]

    @check({"type": "object", "required": ["kind"], "properties": {"kind": kinds.schema}, "allOf": branches})
    def judge(place: Place) -> Checked | Refused:
        node = place.node
        if not isinstance(node, nodes.Mapping):
            return refuse(place, "a mapping")
        shape = shapes.get(_text_of(node, "kind") or "")
        if shape:
            return fill(place, node, shape)
        kind = {key: value for key, value in node.entries.items() if key == "kind"}
        fill(place, nodes.Mapping(kind, node.lines, node.line), nameless)
        key = _text_of(node, "key")
        return Checked(place, {"key": key} if key else {}, frozenset(node.entries))

    return judge


def _branch(kind: str, shape: Shape) -> JsonObject:
    schema = shape.schema
    properties = schema["properties"]
    assert isinstance(properties, dict)
    return {**schema, "properties": {**properties, "kind": {"const": kind}}}


def _text_of(node: nodes.Mapping, key: str) -> str | None:
    value = node.entries.get(key)
    return value.value if isinstance(value, nodes.Scalar) and isinstance(value.value, str) else None


def match_of(*, reads_context: bool) -> Check:
    """What an event is compared with: per key a scalar, or a list of scalars of which any will do; never null.

    With `reads_context` a text may be `$context.<path>`.
    """
    one: JsonObject = {"type": ["string", "number", "boolean"]}

    @check({"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]})
    def value(place: Place) -> Any:
        found: JsonValue | Refused = json_value(place)
        if isinstance(found, Refused):
            return found
        alternatives: list[Any] = found if isinstance(found, list) else [found]
        if not alternatives or any(item is None or isinstance(item, (dict, list)) for item in alternatives):
            place.refuse("must be text, a number or a boolean, or a list of them")
            return REFUSED
        for item in alternatives:
            if isinstance(item, str) and "{{" in item:
                meant = "write $context.<path> for a value of the run's context" if reads_context else "write it out"
                place.refuse(f"no placeholder stands for a value here; {meant}")
                return REFUSED
            if isinstance(item, str) and (item + ".").startswith(CONTEXT):
                if not reads_context:
                    place.refuse("a trigger starts a run, so there is no context to compare with; write the value out")
                    return REFUSED
                if not PATH.fullmatch(item.removeprefix(CONTEXT)):
                    place.refuse(f"`{item[:80]}` must be $context.<path>, such as $context.jira_key")
                    return REFUSED
        return found

    return table(value, key=MATCH_KEY, what="a key of an event")
