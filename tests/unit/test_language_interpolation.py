"""Placeholders: filled in once, never empty, of the value's own type when they stand alone."""

from typing import Any
from uuid import UUID

import pytest

from contracts.base import JsonValue
from contracts.errors import Rejected
from libs.language.interpolation import MISSING, interpolate, is_unfinished, resolve, roots

RUN = UUID("01890000-0000-7000-8000-000000000001")


def fill(value: JsonValue, **scope: Any) -> JsonValue:
    return interpolate(
        value,
        args=scope.get("args", {}),
        context=scope.get("context", {}),
        state=scope.get("state", {"branch": "workflow/1"}),
        run_id=RUN,
    )


def test_every_root() -> None:
    assert fill(
        {"a": "{{args.title}}!", "b": ["{{ context.jira_key }}", "{{state.branch}}"], "c": "{{run_id}}"},
        args={"title": "Hi"},
        context={"jira_key": "FERRY-142"},
    ) == {"a": "Hi!", "b": ["FERRY-142", "workflow/1"], "c": str(RUN)}


@pytest.mark.parametrize("value", [3, 2.5, True, False, [1, "a"], {"x": None}, "text"])
def test_a_placeholder_alone_keeps_the_type(value: JsonValue) -> None:
    filled = fill("{{args.v}}", args={"v": value})
    assert filled == value
    assert type(filled) is type(value)


def test_scalars_inside_text_are_written_as_json() -> None:
    assert fill("{{args.n}}/{{args.b}}", args={"n": 7, "b": True}) == "7/true"


@pytest.mark.parametrize("value", [[1], {"a": 1}])
def test_a_collection_cannot_stand_inside_text(value: JsonValue) -> None:
    with pytest.raises(Rejected) as caught:
        fill("x {{args.v}}", args={"v": value})
    assert (caught.value.code, caught.value.errors[0].path) == ("template.not_text", "args.v")


def test_what_was_filled_in_is_never_read_again() -> None:
    args = {"a": "{{context.secret}}", "b": "{{", "c": "context.secret}}"}
    context = {"secret": "s3cret"}
    assert fill("{{args.a}}", args=args, context=context) == "{{context.secret}}"
    assert fill("-{{args.a}}-", args=args, context=context) == "-{{context.secret}}-"
    assert fill("{{args.b}}{{args.c}}", args=args, context=context) == "{{context.secret}}"


@pytest.mark.parametrize("template", ["{{context.none}}", "x {{context.none}}", "{{context.gone}}", "{{context.a.b}}"])
def test_an_unset_value_is_refused_by_name(template: str) -> None:
    with pytest.raises(Rejected) as caught:
        fill({"head": [template]}, context={"none": None, "a": "text"})
    assert (caught.value.code, caught.value.status) == ("template.unset", 422)
    assert caught.value.errors[0].path in template


def test_empty_text_and_zero_are_set() -> None:
    assert fill(["{{args.a}}", "{{args.b}}"], args={"a": "", "b": 0}) == ["", 0]


def test_keys_and_other_values_are_left_alone() -> None:
    assert fill({"{{run_id}}": 1, "n": None}) == {"{{run_id}}": 1, "n": None}


def test_roots() -> None:
    assert roots({"a": "{{env.HOME}} {{args.x}}", "b": ["{{run_id}}", 3]}) == {"env", "args", "run_id"}


@pytest.mark.parametrize("text, unfinished", [("{{a", True), ("{{a}}", False), ("{{a}} {{b}", True), ("}} {", False)])
def test_unfinished_placeholders(text: str, unfinished: bool) -> None:
    assert is_unfinished(text) is unfinished


def test_resolve() -> None:
    value: JsonValue = {"a": [{"b": 1}], "n": None, "0": "zero"}
    assert resolve("a.0.b", value) == 1
    assert resolve("n", value) is None
    assert resolve("0", value) == "zero"
    for path in ("", "a.1", "a.-1", "a.x", "n.x", "a.0.b.c", "a.²", "a..0"):
        assert resolve(path, value) is MISSING


def test_an_item_and_its_index() -> None:
    filled = interpolate(
        {"a": "{{item.title}} #{{index}}", "b": "{{item}}", "c": "{{index}}"},
        args={},
        context={},
        state={},
        run_id=RUN,
        item={"title": "Hi"},
        index=0,
    )
    assert filled == {"a": "Hi #0", "b": {"title": "Hi"}, "c": 0}


@pytest.mark.parametrize("template", ["{{item}}", "{{item.title}}", "{{index}}"])
def test_without_an_item_there_is_none(template: str) -> None:
    with pytest.raises(Rejected) as caught:
        fill(template)
    assert caught.value.code == "template.unset"
