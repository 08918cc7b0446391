"""Whatever text comes in, the language answers with its own errors, and nothing of Python can be reached."""

import contextlib
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from contracts.base import JsonObject, JsonValue
from contracts.errors import Rejected
from libs.canonical import canonical
from libs.language.expressions import ExpressionError, GateError, evaluate, parse
from libs.language.interpolation import interpolate
from libs.language.loader import load_folder
from libs.language.nodes import plain
from libs.language.problems import Problems
from libs.language.reader import read

SCALARS: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
WORDS = st.sampled_from(
    ["a", "b.c", "a.0", "steps.x", "context.y", "state.branch", "true", "false", "null", "1", "-2.5", "'x'", '"y"',
     "(", ")", "[", "]", ",", "==", "!=", "<", "<=", ">", ">=", "and", "or", "not", "in", "exists(", "len(", "len",
     "__import__", "lambda", "."]
)  # fmt: skip
VALUES: JsonObject = {"a": [1, "x", None], "b": {"c": 2.5}}
YAML_WORDS = st.sampled_from(
    ["workflow:", "id: w", "\n", "  ", "\t", "- ", "{", "}", "[", "]", "&a ", "*a", "!!str ", "---\n", "<<: ",
     "? ", ": ", "stages:", "steps:", "key: k", "kind: agent", "kind: write", "kind: event", "kind: gate", "args: ",
     "variants:", "u: ", "stages.k.steps: ", "triggers:", "kind: schedule", "cron: ", "wait: ", "for_each: ", "1.10",
     "~", "'", '"', "|\n", "#", "\\0"]
)  # fmt: skip


def judged(text: str) -> bool | None:
    with contextlib.suppress(ExpressionError, GateError):
        return evaluate(parse(text), output=VALUES, steps={"x": 1}, context={"y": "z"}, state={"branch": "w/1"})
    return None


@given(st.text() | st.lists(WORDS, max_size=30).map(" ".join) | st.lists(WORDS, max_size=30).map("".join))
@example("__import__('os').system('true')")
@example("().__class__.__bases__")
@example("(" * 900)
@example("not " * 249 + "a")
def test_expressions_are_total(text: str) -> None:
    assert judged(text) in (True, False, None)


@given(st.lists(WORDS, max_size=12).map(" ".join))
def test_an_expression_that_parses_says_the_same_twice(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        assert parse(text) == parse(text)
        assert judged(text) == judged(f"({text})")


@given(st.text(), st.dictionaries(st.text(max_size=5), st.text(), max_size=4))
def test_interpolation_is_total_and_single(template: str, context: dict[str, Any]) -> None:
    with contextlib.suppress(Rejected):
        interpolate(template, args={}, context=context, state={}, run_id="r")


@given(JSON)
def test_a_value_is_filled_in_as_it_is(value: JsonValue) -> None:
    if value is not None:
        filled = interpolate({"a": ["{{args.v}}"]}, args={"v": value}, context={}, state={}, run_id="r")
        assert filled == {"a": [value]}


@given(st.text() | st.lists(YAML_WORDS, max_size=40).map("".join))
def test_whatever_is_read_can_be_kept(text: str) -> None:
    problems = Problems()
    node = read("f.yaml", text, problems, path="workflow")
    if node is not None and not len(problems):
        canonical(plain(node))
    assert node is not None or len(problems)


PATHS = st.sampled_from(
    ["sources.yaml", "channels.yaml", "mcp/s.yaml", "workflows/w/workflow.yaml", "workflows/w/prompts/p.md"]
)


@given(st.dictionaries(PATHS | st.text(), st.text() | st.lists(YAML_WORDS, max_size=40).map("".join), max_size=4))
def test_loading_is_total(files: dict[str, str]) -> None:
    with contextlib.suppress(Rejected):
        load_folder(files)
