"""The scripted model's placeholders fit the schemas that they stand in for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from services.dev.minimal_instance import minimal_instance
from services.dev.pattern_text import matching_text

Schemas = st.SearchStrategy[dict[str, Any]]

PATTERNS = (
    "^[A-Z]+-[0-9]+$",
    r"^v?\d+\.\d+\.\d+$",
    "^[a-z][a-z0-9_-]{2,30}$",
    "^(feat|fix|docs)(\\([a-z]+\\))?: .+$",
    "^#[0-9a-fA-F]{6}$",
    r"^\S+@\S+$",
    "\\S",
    "^(?:[A-Z]{2}){1,3}$",
    "^[^\\s/]+/[^\\s/]+$",
)
FORMATS = ("date", "date-time", "time", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "duration")
KEYS = st.sampled_from(("summary", "title", "acceptance_criteria", "id", "size"))


@st.composite
def strings(draw: st.DrawFn) -> dict[str, Any]:
    least = draw(st.integers(0, 60))
    most = least + draw(st.integers(0, 60))
    bounds = draw(st.sets(st.sampled_from(("minLength", "maxLength"))))
    return {"type": "string"} | {k: v for k, v in (("minLength", least), ("maxLength", most)) if k in bounds}


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, Any]:
    """Bounds round a multiple of the step, so that there is a number between them."""
    kind = draw(st.sampled_from(("integer", "number")))
    step = draw(st.sampled_from((1, 2, 5, 100) if kind == "integer" else (1, 3, 0.5, 0.25)))
    inside = draw(st.integers(-1_000, 1_000)) * step
    schema: dict[str, Any] = {"type": kind}
    if draw(st.booleans()):
        schema["multipleOf"] = step
    if draw(st.booleans()):
        schema["minimum"] = inside - draw(st.integers(0, 3)) * step
    if draw(st.booleans()):
        schema["maximum"] = inside + draw(st.integers(0, 3)) * step
    if draw(st.booleans()):
        schema["exclusiveMinimum"] = inside - draw(st.integers(1, 3)) * step
    if draw(st.booleans()):
        schema["exclusiveMaximum"] = inside + draw(st.integers(1, 3)) * step
    return schema


LEAVES: Schemas = st.one_of(
    strings(),
    numbers(),
    st.sampled_from(PATTERNS).map(lambda pattern: {"type": "string", "pattern": pattern}),
    st.sampled_from(FORMATS).map(lambda name: {"type": "string", "format": name}),
    st.lists(st.text(max_size=5) | st.integers() | st.none(), min_size=1, max_size=3).map(lambda v: {"enum": v}),
    st.sampled_from((0, "x", True, None, [1], {"a": 1})).map(lambda value: {"const": value}),
    st.sampled_from(({"type": "boolean"}, {"type": "null"}, {"type": ["null", "string"]}, {})),
    st.integers(0, 5).map(
        lambda count: {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": count,
            "uniqueItems": True,
        }
    ),
    st.integers(0, 5).map(
        lambda count: {"type": "array", "items": {"type": "integer"}, "minItems": count, "uniqueItems": True}
    ),
)


@st.composite
def objects(draw: st.DrawFn, inner: Schemas) -> dict[str, Any]:
    properties = draw(st.dictionaries(KEYS, inner, max_size=4))
    required = [key for key in properties if draw(st.booleans())]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    if draw(st.booleans()):
        schema["additionalProperties"] = False
    if draw(st.booleans()):
        schema["minProperties"] = draw(st.integers(0, len(properties)))
    return schema


@st.composite
def arrays(draw: st.DrawFn, inner: Schemas) -> dict[str, Any]:
    count = draw(st.integers(0, 3))
    schema: dict[str, Any] = {"type": "array", "items": draw(inner), "minItems": count}
    if draw(st.booleans()):
        schema["maxItems"] = count + draw(st.integers(0, 2))
    return schema


def combined(inner: Schemas) -> Schemas:
    """One of several, or two that both hold, on values that each can have."""
    tagged = st.tuples(inner, inner).map(
        lambda two: {
            "oneOf": [
                {"type": "object", "required": ["kind", "is"], "properties": {"kind": {"const": kind}, "is": schema}}
                for kind, schema in zip(("first", "second"), two, strict=True)
            ]
        }
    )
    both = inner.map(
        lambda schema: {
            "allOf": [
                {"type": "object", "required": ["a"], "properties": {"a": schema}},
                {"required": ["b"], "properties": {"b": {"type": "integer", "minimum": 1}}},
            ],
            "properties": {"b": {"maximum": 7}},
        }
    )
    return st.one_of(st.lists(inner, min_size=1, max_size=3).map(lambda several: {"anyOf": several}), tagged, both)


SATISFIABLE: Schemas = st.recursive(
    LEAVES, lambda inner: st.one_of(objects(inner), arrays(inner), combined(inner)), max_leaves=8
)


def fits(schema: dict[str, Any], value: Any) -> None:
    Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(value)


@given(SATISFIABLE)
def test_the_instance_fits(schema: dict[str, Any]) -> None:
    fits(schema, minimal_instance(schema))


@given(SATISFIABLE)
def test_the_instance_fits_behind_references(schema: dict[str, Any]) -> None:
    whole = {
        "$defs": {"one": schema, "two": {"$ref": "#/$defs/one"}},
        "type": "object",
        "required": ["a", "more"],
        "properties": {"a": {"$ref": "#/$defs/two"}, "more": {"type": "array", "items": {"$ref": "#"}}},
    }
    fits(whole, minimal_instance(whole))


@given(SATISFIABLE, SATISFIABLE)
def test_what_contradicts_itself_still_ends(one: dict[str, Any], other: dict[str, Any]) -> None:
    minimal_instance({"allOf": [one, other], "not": one, "$ref": "#/$defs/nothing"})


@pytest.mark.parametrize("pattern", PATTERNS)
@given(chars_min=st.integers(0, 40))
def test_a_text_for_a_pattern(pattern: str, chars_min: int) -> None:
    text = matching_text(pattern, chars_min=chars_min)
    fits({"type": "string", "pattern": pattern}, text)


@pytest.mark.parametrize("pattern", ["^[A-Z]+-[0-9]+$", r"^\S+@\S+$", "a", "^(ab)*$", ".", "^x+y{2}"])
@given(chars_min=st.integers(0, 40))
def test_a_text_for_a_pattern_is_as_long_as_it_must_be(pattern: str, chars_min: int) -> None:
    fits({"type": "string", "pattern": pattern, "minLength": chars_min}, matching_text(pattern, chars_min=chars_min))


@given(st.text("ab01^$.[]()\\{}*+?|-,dwsbx<=!", max_size=20))
def test_any_pattern_is_read_or_left(pattern: str) -> None:
    matching_text(pattern, chars_min=3)


@pytest.mark.parametrize("pattern", ["(?=x)", "(?!x)y", r"(a)\1", r"\bword", r"\p{L}", "[", "(", "a{", "*", "(" * 200])
def test_what_is_not_simple_is_left(pattern: str) -> None:
    assert matching_text(pattern) is None
