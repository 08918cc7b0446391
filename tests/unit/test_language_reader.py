"""YAML as authors write it: what it looks like is what it is, and what can surprise is refused with its line."""

import pytest

from contracts.errors import Rejected
from libs.language.nodes import plain
from libs.language.problems import Problems
from libs.language.reader import DEPTH_MAX, VALUES_MAX, YAML_CHARS_MAX, read


def value_of(text: str) -> object:
    problems = Problems()
    node = read("f.yaml", text, problems, path="workflow")
    problems.raise_if_any()
    assert node is not None
    return plain(node)


def problems_of(text: str) -> list[tuple[int | None, str, str]]:
    problems = Problems()
    read("f.yaml", text, problems, path="workflow")
    with pytest.raises(Rejected) as caught:
        problems.raise_if_any()
    assert caught.value.code == "definition.invalid"
    assert caught.value.status == 422
    return [(item.line, item.path, item.message) for item in caught.value.errors]


@pytest.mark.parametrize(
    "text, value",
    [
        ("a: no", "no"),
        ("a: NO", "NO"),
        ("a: off", "off"),
        ("a: 12:30", "12:30"),
        ("a: 2026-11-29", "2026-11-29"),
        ("a: 1_000", "1_000"),
        ("a: =", "="),
        ("a: true", True),
        ("a: ~", None),
        ("a:", None),
        ("a: 0o17", 15),
        ("a: 0x1F", 31),
        ("a: 1e3", 1000.0),
        ("a: '1'", "1"),
        ("a: |\n  one\n  \ttwo\n", "one\n\ttwo\n"),
    ],
)
def test_scalars_are_what_they_look_like(text: str, value: object) -> None:
    read_value = value_of(text)
    assert read_value == {"a": value}
    assert isinstance(read_value, dict)
    assert type(read_value["a"]) is type(value)


def test_on_is_a_key_like_any_other() -> None:
    assert value_of("on: { yes: no }") == {"on": {"yes": "no"}}


def test_a_merge_key_is_not_merged() -> None:
    assert value_of("<<: {a: 1}") == {"<<": {"a": 1}}


def test_a_break_of_yaml_1_1_can_be_escaped() -> None:
    assert value_of('a: "x\\u2028y"') == {"a": "x\u2028y"}


def test_byte_order_mark_and_line_ends_are_normalised() -> None:
    assert value_of("\ufeffa: 1\r\nb: |\r\n  x\r\n  y\r\n") == {"a": 1, "b": "x\ny\n"}


@pytest.mark.parametrize(
    "text, line, message",
    [
        ("a:\n\tb: 1", 2, "tab"),
        ("a: &x 1\nb: *x", 1, "anchors and aliases"),
        ("a: [&x [1], *x]", 1, "anchors and aliases"),
        ("a: !!python/object:os.system 1", 1, "tag"),
        ("%YAML 1.1\n---\na: 1", 2, "directives"),
        ("a: 1\n---\nb: 2", 2, "one document"),
        ("# nothing\n", 1, "empty"),
        ("", 1, "empty"),
        ("a: [1", 1, "not YAML"),
        ("? [a]\n: b", 1, "key must be text"),
        ("a: \x01", None, "not allowed"),
        ("a: 1\nb: x\u2028y", 2, 'write it as "\\u2028"'),
        ("\x85a: 1", 1, "not a line break of YAML 1.2"),
        ("a: 1\n...\nb: 2", 3, "one document"),
        ("a:\t1", 1, "tab"),
        ('a: "\\UFFFFFFFF"', None, "not allowed"),
    ],
)
def test_a_document_that_cannot_be_understood(text: str, line: int | None, message: str) -> None:
    [(found_line, path, found)] = problems_of(text)
    assert (found_line, path) == (line, "workflow")
    assert message in found


@pytest.mark.parametrize(
    "text, line, path, message",
    [
        ("a: 1\nb: 2\na: 3", 3, "a", "repeated; it stands already in line 1"),
        ("s:\n  - key: one\n    x: .inf", 3, "s.one.x", "not a finite number"),
        ("s:\n  - x: -.INF", 2, "s.0.x", "not a finite number"),
        ("a: .nan", 1, "a", "not a finite number"),
        ("a: 1e400", 1, "a", "out of range"),
        (f"a: {'9' * 5000}", 1, "a", "out of range"),
        ('a: "\\0"', 1, "a", "NUL"),
        ('a: "\\ud800"', 1, "a", "surrogate"),
        ("1: a", 1, "1", "not text"),
        ("workflow:\n  a: .nan", 2, "a", "not a finite number"),
    ],
)
def test_a_value_that_cannot_be_kept(text: str, line: int, path: str, message: str) -> None:
    [(found_line, found_path, found)] = problems_of(text)
    assert (found_line, found_path) == (line, path)
    assert message in found


def test_every_defect_is_told() -> None:
    assert len(problems_of("a: .nan\nb: .inf\na: 2\n")) == 3


def test_depth_is_limited_before_the_rest_is_read() -> None:
    [(_, _, message)] = problems_of("[" * 50_000)
    assert f"deeper than {DEPTH_MAX}" in message


def test_size_is_limited() -> None:
    [(_, _, message)] = problems_of("a" * (YAML_CHARS_MAX + 1))
    assert "characters" in message


def test_the_number_of_values_is_limited_before_the_rest_is_read() -> None:
    [(line, _, message)] = problems_of("a:\n" + "- 1\n" * (VALUES_MAX + 5))
    assert line == VALUES_MAX - 1
    assert f"more than {VALUES_MAX} keys and values" in message
