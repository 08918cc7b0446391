"""JSON Schemas of agents' outputs: draft 2020-12, an object at the root, nothing fetched from anywhere."""

from collections.abc import Iterator
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from contracts.base import JsonObject
from contracts.errors import Malformed
from libs.canonical import parse
from libs.language.problems import Problems
from libs.language.reader import FILE_CHARS_MAX, normalise

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
IN_PLACE_MAX: Final = 32
_BYTES_MAX: Final = 4 * FILE_CHARS_MAX
_IN_PLACE: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE_ONE: Final = ("not", "if", "then", "else")


def read_schema(file: str, text: str, problems: Problems) -> JsonObject | None:
    """Parse and check a schema. Returns None after noting what is wrong with it."""
    try:
        schema = parse(normalise(text).encode("utf-8", "surrogatepass"), what="the schema", bytes_max=_BYTES_MAX)
    except Malformed as error:
        problems.add(file, None, "schema", error.message)
        return None
    try:
        found = list(_objections(schema))
    except RecursionError:
        found = [("", "references lead too deep; write the schema flatter")]
    for path, message in found:
        problems.add(file, None, path or "schema", message)
    return None if found or not isinstance(schema, dict) else schema


def _objections(schema: Any) -> Iterator[tuple[str, str]]:
    """What is wrong with a schema, as (dotted path, message)."""
    if not isinstance(schema, dict):
        yield "", "must be an object"
        return
    dialect = schema.get("$schema", DIALECT)
    if dialect != DIALECT:
        yield "$schema", f"must be {DIALECT}, or be left out"
        return
    try:
        Draft202012Validator.check_schema(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    except SchemaError as error:
        yield ".".join(str(part) for part in error.absolute_path), f"not a JSON Schema: {error.message[:300]}"
        return
    if schema.get("type") != "object":
        yield "type", "must be `object`: an agent's output is an object"
    yield from _references(schema)


def _references(root: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """References that leave the file, lead nowhere, or lead back to themselves without a step into the value."""
    registry: Registry[Any] = Registry().with_resource("", DRAFT202012.create_resource({**root, "$id": ""}))
    resolver = registry.resolver()
    targets: dict[int, list[Any]] = {}
    todo: list[Any] = [root]
    seen: set[int] = set()
    while todo:
        schema = todo.pop()
        if not isinstance(schema, dict) or id(schema) in seen:
            continue
        seen.add(id(schema))
        if schema is not root and "$id" in schema:
            yield "$id", "only the root may have an `$id`; use `$defs` and `$anchor`"
            continue
        todo.extend(DRAFT202012.subresources_of(schema))
        for name in ("$ref", "$dynamicRef"):
            reference = schema.get(name)
            if reference is None:
                continue
            if not reference.startswith("#"):
                yield name, f"`{reference[:200]}` leaves the file; only references into it (`#/$defs/...`) are followed"
                continue
            try:
                target = root if reference == "#" else resolver.lookup(reference).contents
            except Unresolvable:
                yield name, f"`{reference[:200]}` leads nowhere"
                continue
            targets.setdefault(id(schema), []).append(target)
            todo.append(target)
    if objection := _endless(root, targets):
        yield "$ref", objection


def _endless(root: dict[str, Any], targets: dict[int, list[Any]]) -> str | None:
    """Why checking a value might never end, or end too deep: schemas that apply schemas to the same value."""
    heights: dict[int, int] = {}
    open_: set[int] = set()

    def height(schema: Any) -> int:
        """How many schemas follow one another on one value, this one included."""
        if not isinstance(schema, dict):
            return 0
        if id(schema) in open_:
            raise _EndlessError("a reference leads back to itself without a step into the value: it would never end")
        if len(open_) + heights.get(id(schema), 1) > IN_PLACE_MAX:
            raise _EndlessError(f"more than {IN_PLACE_MAX} references and combinations follow one another on one value")
        if id(schema) not in heights:
            open_.add(id(schema))
            heights[id(schema)] = 1 + max((height(one) for one in _applied(schema, targets)), default=0)
            open_.discard(id(schema))
        return heights[id(schema)]

    todo: list[Any] = [root]
    known: set[int] = set()
    while todo:
        schema = todo.pop()
        if not isinstance(schema, dict) or id(schema) in known:
            continue
        known.add(id(schema))
        try:
            height(schema)
        except _EndlessError as error:
            return str(error)
        todo.extend((*DRAFT202012.subresources_of(schema), *targets.get(id(schema), ())))
    return None


class _EndlessError(Exception):
    """Schemas that apply schemas to the same value go too far."""


def _applied(schema: dict[str, Any], targets: dict[int, list[Any]]) -> Iterator[Any]:
    """The schemas that a schema applies to the very value it is applied to."""
    for name in _IN_PLACE:
        yield from schema.get(name, ())
    for name in _IN_PLACE_ONE:
        yield schema.get(name)
    yield from schema.get("dependentSchemas", {}).values()
    yield from targets.get(id(schema), ())
