"""Schemas of outputs: draft 2020-12, an object at the root, closed in itself."""

import json
from typing import Any

import pytest

from contracts.errors import Rejected
from libs.language.problems import Problems
from libs.language.schemas import DIALECT, read_schema


def read(schema: Any) -> Any:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    problems = Problems()
    value = read_schema("s.json", text, problems)
    problems.raise_if_any()
    return value


TREE = {
    "$schema": DIALECT,
    "$id": "https://schemas.example.com/tree",
    "type": "object",
    "properties": {
        "child": {"$ref": "#"},
        "name": {"$ref": "#name"},
        "note": {"anyOf": [{"$ref": "#/$defs/note"}, {"type": "null"}]},
        "$ref": {"type": "string", "const": {"$ref": "https://example.com/only-data"}},
    },
    "$defs": {"name": {"$anchor": "name", "type": "string"}, "note": {"type": "string"}},
}


def chain(length: int) -> dict[str, Any]:
    links: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(length)}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**links, f"d{length}": True}}


@pytest.mark.parametrize("schema", [{"type": "object"}, TREE, chain(20)])
def test_a_schema_is_read(schema: dict[str, Any]) -> None:
    assert read(schema) == schema


@pytest.mark.parametrize(
    "schema, path, message",
    [
        ("{", "schema", "not JSON"),
        ('{"type": "object", "type": "array"}', "schema", "repeated"),
        ('{"type": "object", "x": NaN}', "schema", "NaN"),
        ("[]", "schema", "must be an object"),
        ("true", "schema", "must be an object"),
        ({"type": "array"}, "type", "must be `object`"),
        ({}, "type", "must be `object`"),
        ({"type": ["object", "null"]}, "type", "must be `object`"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}, "$schema", DIALECT),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, "properties.a.type", "not a JSON Schema"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "properties.a.pattern", "regex"),
        ({"type": "object", "required": "a"}, "required", "not a JSON Schema"),
        ({"type": "object", "items": {"$ref": "https://example.com/s"}}, "$ref", "leaves the file"),
        ({"type": "object", "items": {"$ref": "other.json#/a"}}, "$ref", "leaves the file"),
        ({"type": "object", "items": {"$dynamicRef": "file:///etc/passwd"}}, "$dynamicRef", "leaves the file"),
        ({"type": "object", "items": {"$ref": "#/$defs/none"}}, "$ref", "leads nowhere"),
        ({"type": "object", "items": {"$ref": "#/required/x"}, "required": ["a"]}, "$ref", "leads nowhere"),
        ({"type": "object", "items": {"$ref": "#/required/7"}, "required": ["a"]}, "$ref", "leads nowhere"),
        ({"type": "object", "items": {"$ref": "#/type/a"}}, "$ref", "leads nowhere"),
        ({"type": "object", "items": {"$ref": "#/type"}}, "$ref", "not a JSON Schema"),
        ({"type": "object", "items": {"$ref": "#/x"}, "x": {"allOf": 5, "$ref": 7}}, "$ref", "not a JSON Schema"),
        ({"type": "object", "x": {"$ref": "https://e"}, "items": {"$ref": "#/x"}}, "$ref", "leaves the file"),
        ({"type": "object", "items": {"$id": "https://example.com/"}}, "$id", "only the root"),
        ({"type": "object", "$ref": "#"}, "$ref", "leads back to itself"),
        ({"type": "object", "allOf": [{"$ref": "#"}]}, "$ref", "leads back to itself"),
        (chain(40), "$ref", "more than 32 references"),
        (chain(500), "$ref", "more than 32 references"),
    ],
)
def test_a_schema_is_refused(schema: Any, path: str, message: str) -> None:
    with pytest.raises(Rejected) as caught:
        read(schema)
    [item] = caught.value.errors
    assert (item.file, item.path) == ("s.json", path)
    assert message in item.message
