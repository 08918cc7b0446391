"""What servers say of their own tools, held against what definitions ask of them.

A server that names its arguments is taken at its word: an argument that it does not name is a slip, unless it says that
it takes others too. Values are compared where they are known before a run, so nothing that holds a placeholder is.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing.exceptions import Unresolvable

from contracts.base import JsonObject, JsonValue
from libs.language import nodes
from libs.language.fit import misfits
from libs.language.interpolation import placeholders
from libs.language.problems import hint
from libs.language.shapes import Checked, Place

Tools = Mapping[str, JsonObject]
"""A server's tools: name → JSON Schema of the arguments."""

_NO_SCHEMA: Final[JsonObject] = {}


def check_listed(server: Checked, listed: Tools) -> None:
    """Note what a declaration names that the server does not have, and what its probes and back-links misname."""
    for name, tool in (server.get("tools") or {}).items():
        if name not in listed:
            tool.place.refuse(f"the server has no tool `{name}`{hint(name, listed)}")
            continue
        argument, known = tool.get("idempotency_argument"), _arguments(listed[name])
        if argument is not None and known is not None and argument not in known:
            tool.refuse("idempotency_argument", f"`{name}` takes no argument `{argument}`{hint(argument, known)}")
        for key in ("probe", "back_link"):
            if asked := tool.get(key):
                _check_asked(asked, listed)


def check_arguments(step: Checked, tool: str, listed: Tools, *, complete: bool) -> None:
    """Note what is wrong with `args` for a tool; `complete` says that no other arguments are added to them."""
    schema = listed.get(tool, _NO_SCHEMA)
    known = _arguments(schema)
    given: JsonObject = step.get("args") or {}
    if known is None or ("args" in step.given and "args" not in step.values):
        return
    for key, value in given.items():
        place = _entry(step.at("args"), key)
        if key not in known:
            if not _takes_others(schema):
                place.refuse(f"`{tool}` takes no argument `{key}`{hint(key, known)}")
        elif not any(placeholders(value)):
            for message in _objections(value, known[key], schema):
                place.refuse(f"`{tool}` would refuse it: {message}")
    if complete:
        for name in sorted(required_arguments(schema) - given.keys()):
            step.refuse("args", f"`{tool}` needs the argument `{name}`; set it")


def required_arguments(schema: JsonObject) -> frozenset[str]:
    """The arguments without which a tool would refuse a call."""
    required = schema.get("required")
    return frozenset(name for name in required if isinstance(name, str)) if isinstance(required, list) else frozenset()


def _check_asked(asked: Checked, listed: Tools) -> None:
    tool = asked.get("tool")
    if tool is None:
        return
    if tool not in listed:
        asked.refuse("tool", f"the server has no tool `{tool}`{hint(tool, listed)}")
    else:
        check_arguments(asked, tool, listed, complete=True)


def _arguments(schema: JsonObject) -> Mapping[str, JsonValue] | None:
    """The arguments that a schema names, with their own schemas; None when it says nothing of them."""
    named = schema.get("properties")
    return named if isinstance(named, dict) else None


def _takes_others(schema: JsonObject) -> bool:
    return bool(schema.get("additionalProperties")) or "patternProperties" in schema


def _objections(value: JsonValue, wanted: JsonValue, schema: JsonObject) -> Iterator[str]:
    """Why a value does not fit; nothing where the schema is none, or leads out of itself."""
    if not isinstance(wanted, dict):
        return
    whole: JsonObject = {**wanted, **({"$defs": schema["$defs"]} if "$defs" in schema else {})}
    try:
        Draft202012Validator.check_schema(whole)
        yield from (item.message for item in misfits(value, whole, root="args"))
    except (SchemaError, ValidationError, Unresolvable, RecursionError):
        return


def _entry(place: Place, key: str) -> Place:
    node = place.node
    assert isinstance(node, nodes.Mapping), "what passed as an object is a mapping"
    return place.child(key, node.entries[key], node.lines[key])
