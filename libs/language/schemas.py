"""JSON Schemas of outputs and answers: draft 2020-12, an object at the root, nothing fetched from anywhere."""

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
        yield "type", "must be `object`: an output or an answer is an object"
    yield from _references(schema)


def _references(root: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """References that leave the file, lead nowhere, or lead back to themselves without a step into the value."""
    registry: Registry[Any] = Registry().with_resource("", DRAFT202012.create_resource({**root, "$id": ""}))
    targets: dict[int, list[Any]] = {}
    schemas = _below(root)
    seen = {id(schema) for schema in schemas}
    for schema in schemas:  # grows while references lead to schemas at unusual places
        if schema is not root and "$id" in schema:
            yield "$id", "only the root may have an `$id`; use `$defs` and `$anchor`"
            continue
        for name in ("$ref", "$dynamicRef"):
            if name not in schema:
                continue
            try:
                target = root if schema[name] == "#" else _target(registry, schema[name], seen)
            except _ReferenceError as error:
                yield name, f"`{schema[name][:200]}` {error}"
                continue
            targets.setdefault(id(schema), []).append(target)
            if id(target) not in seen:
                found = _below(target)
                seen.update(id(one) for one in found)
                schemas.extend(found)
    if objection := _endless(schemas, targets):
        yield "$ref", objection


def _below(schema: Any) -> list[dict[str, Any]]:
    """A schema and all schemas inside it, wherever the dialect has schemas; true and false are left out."""
    found: list[dict[str, Any]] = []
    todo = [schema]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            found.append(one)
            todo.extend(DRAFT202012.subresources_of(one))
    return found


def _target(registry: Registry[Any], reference: str, checked: set[int]) -> Any:
    """The schema that a reference leads to. One at an unusual place was not checked with the root, so it is here."""
    if not reference.startswith("#"):
        raise _ReferenceError("leaves the file; only references into it (`#/$defs/...`) are followed")
    try:
        target = registry.resolver().lookup(reference).contents
        if id(target) not in checked:
            Draft202012Validator.check_schema(target, format_checker=Draft202012Validator.FORMAT_CHECKER)
    except (Unresolvable, ValueError, TypeError, LookupError) as error:
        raise _ReferenceError("leads nowhere") from error
    except SchemaError as error:
        raise _ReferenceError("leads to what is not a JSON Schema") from error
    return target


class _ReferenceError(Exception):
    """Why a reference cannot be followed; the end of a sentence that begins with it."""


def _endless(schemas: list[dict[str, Any]], targets: dict[int, list[Any]]) -> str | None:
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

    try:
        for one in schemas:
            height(one)
    except _EndlessError as error:
        return str(error)
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
