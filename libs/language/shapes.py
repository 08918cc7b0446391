"""Structure of a document: which keys a mapping has, of which type, and what to say when it does not hold.

A shape is a table of fields. Checking a node against it notes every problem and yields a `Checked`: the values that
passed, with their places, so that later rules can judge them and point at the same lines. Every check also says as a
JSON Schema what it takes, so editors are told from the very table that the loader reads.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from contracts.base import JsonObject, JsonValue
from libs.language import nodes
from libs.language.problems import Problems, hint, nearest

PATH_PART_CHARS_MAX: Final = 100
"""Characters of a key that a path repeats; an author's slip may be a whole page."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node in its file, under its dotted path. `line` is that of its key."""

    file: str
    path: str
    node: nodes.Node
    line: int
    problems: Problems

    def refuse(self, message: str) -> None:
        self.problems.add(self.file, self.line, self.path, message)

    def child(self, key: str, node: nodes.Node, line: int) -> "Place":
        key = key[:PATH_PART_CHARS_MAX]
        return Place(self.file, f"{self.path}.{key}" if self.path else key, node, line, self.problems)


class Refused:
    """Stands for a value whose problem is noted already."""


REFUSED: Final = Refused()


@dataclass(frozen=True, slots=True)
class Check:
    """Judges a node: its value, or `REFUSED` after noting what is wrong. `schema` takes whatever the judge may take."""

    judge: Callable[[Place], Any]
    schema: JsonObject

    def __call__(self, place: Place) -> Any:
        return self.judge(place)


def check(schema: JsonObject) -> Callable[[Callable[[Place], Any]], Check]:
    """Make a check of a function that judges."""
    return lambda judge: Check(judge, schema)


@dataclass(frozen=True, slots=True)
class Field:
    check: Check
    required: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """`elsewhere` are keys of the language that have no place here, with where they belong: not a slip of the pen."""

    fields: Mapping[str, Field]
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> JsonObject:
        required: list[JsonValue] = [name for name, wanted in self.fields.items() if wanted.required]
        schema: JsonObject = {
            "type": "object",
            "properties": {name: wanted.check.schema for name, wanted in self.fields.items()},
            "additionalProperties": False,
        }
        return {**schema, "required": required} if required else schema


def shape(*required: tuple[str, Check], **optional: Check) -> Shape:
    """A shape of these keys, in this order."""
    fields = {name: Field(check, required=True) for name, check in required}
    return Shape({**fields, **{name: Field(check) for name, check in optional.items()}})


@dataclass(frozen=True, slots=True)
class Checked:
    """A mapping whose `values` passed their own checks; what did not is absent, and its problem is noted.

    `given` are the keys that the author wrote or misspelled, so that one slip is told once.
    """

    place: Place
    values: Mapping[str, Any] = field(default_factory=dict)
    given: frozenset[str] = frozenset()

    def get(self, key: str) -> Any:
        """The value of a key that passed, else None."""
        return self.values.get(key)

    def refuse(self, key: str, message: str) -> None:
        """Note a problem at a key, or at the whole mapping's line when the key is not there."""
        self.at(key).refuse(message)

    def at(self, key: str) -> Place:
        node = self.place.node
        if isinstance(node, nodes.Mapping) and key in node.entries:
            return self.place.child(key, node.entries[key], node.lines[key])
        return self.place.child(key, node, self.place.line)


def mapping(shape: Shape) -> Check:
    """A mapping with the keys of a shape."""

    @check(shape.schema)
    def judge(place: Place) -> Checked | Refused:
        if not isinstance(place.node, nodes.Mapping):
            return refuse(place, "a mapping")
        return fill(place, place.node, shape)

    return judge


def fill(place: Place, node: nodes.Mapping, shape: Shape) -> Checked:
    """Check each key of a mapping against a shape."""
    values: dict[str, Any] = {}
    given: set[str] = set()
    for key, value in node.entries.items():
        at = place.child(key, value, node.lines[key])
        if key in shape.fields:
            given.add(key)
            checked = shape.fields[key].check(at)
            if checked is not REFUSED:
                values[key] = checked
        elif key in shape.elsewhere:
            at.refuse(shape.elsewhere[key])
        else:
            at.refuse(f"unknown key{hint(key, shape.fields)}")
            given.add(nearest(key, shape.fields) or key)
    for key, wanted in shape.fields.items():
        if wanted.required and key not in given:
            place.child(key, node, place.line).refuse("required and missing")
    return Checked(place, values, frozenset(given))


def each(element: Check, *, at_least: int = 0) -> Check:
    """A list whose elements pass a check. Elements that did not are left out."""

    @check({"type": "array", "items": element.schema, "minItems": at_least})
    def judge(place: Place) -> tuple[Any, ...] | Refused:
        if not isinstance(place.node, nodes.Sequence):
            return refuse(place, "a list")
        if len(place.node.items) < at_least:
            place.refuse("must not be empty")
            return REFUSED
        places = [place.child(nodes.label(item, i), item, item.line) for i, item in enumerate(place.node.items)]
        return tuple(value for at in places if (value := element(at)) is not REFUSED)

    return judge


def table(element: Check, *, key: re.Pattern[str], what: str, keys: frozenset[str] | None = None) -> Check:
    """A mapping from keys of the author's choice, or from a closed set, to values that pass a check."""
    names: JsonObject = {"pattern": whole(key)} if keys is None else {"enum": [*sorted(keys)]}

    @check({"type": "object", "propertyNames": names, "additionalProperties": element.schema})
    def judge(place: Place) -> dict[str, Any] | Refused:
        if not isinstance(place.node, nodes.Mapping):
            return refuse(place, "a mapping")
        values: dict[str, Any] = {}
        for name, node in place.node.entries.items():
            at = place.child(name, node, place.node.lines[name])
            if keys is not None and name not in keys:
                at.refuse(f"not {what}{hint(name, keys)}")
            elif not key.fullmatch(name):
                at.refuse(f"not {what}: it must match {key.pattern}")
            elif (value := element(at)) is not REFUSED:
                values[name] = value
        return values

    return judge


def whole(wanted: re.Pattern[str]) -> str:
    """A pattern of JSON Schema, which looks for a part, that fits the whole text only."""
    return f"^(?:{wanted.pattern})$"


def refuse(place: Place, wanted: str) -> Refused:
    """Note that a node is of another type than wanted. A value with a defect has its problem already."""
    node = place.node
    if isinstance(node, nodes.Scalar) and node.defect:
        return REFUSED
    quote = ""
    if wanted.startswith("text") and isinstance(node, nodes.Scalar) and node.value is not None:
        quote = f'; quote it: "{node.text[:40]}"'
    place.refuse(f"must be {wanted}, not {nodes.kind_of(node)}{quote}")
    return REFUSED
