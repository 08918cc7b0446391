"""A YAML document as values that know where they stand."""

import re
from collections.abc import Mapping as MappingType
from dataclasses import dataclass

from contracts.base import JsonValue

NUMBER_CHARS_MAX = 300
"""Longer numbers are refused before Python is asked to convert them."""

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_REWRITTEN = re.compile(r"[-+]?0[0-9].*|[-+]?[0-9]*\.[0-9]+0")


@dataclass(frozen=True, slots=True)
class Scalar:
    """`text` is what stands in the file, so that `1.10` can still be told from `1.1`.

    `defect` says why the value cannot be kept; it was reported when the file was read.
    """

    value: str | int | float | bool | None
    text: str
    line: int
    defect: str | None = None

    @property
    def is_rewritten(self) -> bool:
        """Whether reading it as a number drops digits that the author wrote: `1.10`, `007`."""
        return (
            isinstance(self.value, (int, float))
            and not isinstance(self.value, bool)
            and bool(_REWRITTEN.fullmatch(self.text))
        )


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple["Node", ...]
    line: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """`lines` are those of the keys; `line` is where the mapping begins. `defects` are (key, line, what is wrong)."""

    entries: MappingType[str, "Node"]
    lines: MappingType[str, int]
    line: int
    defects: tuple[tuple[str, int, str], ...] = ()


Node = Scalar | Sequence | Mapping


def plain(node: Node) -> JsonValue:
    """The bare value, without places."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [plain(item) for item in node.items]
        case Mapping():
            return {key: plain(value) for key, value in node.entries.items()}


def label(item: Node, index: int) -> str:
    """The name of a list's element in a dotted path: its key or id, else its place from 0."""
    if isinstance(item, Mapping):
        for name in ("key", "id"):
            named = item.entries.get(name)
            if isinstance(named, Scalar) and isinstance(named.value, str) and named.value.isprintable() and named.value:
                return named.value[:64]
    return str(index)


def kind_of(node: Node) -> str:
    """What the node is, in an author's words."""
    match node:
        case Sequence():
            return "a list"
        case Mapping():
            return "a mapping"
        case Scalar(value=None):
            return "nothing"
        case Scalar(value=bool()):
            return f"the boolean {node.text}"
        case Scalar(value=int() | float()):
            return f"the number {node.text[:40]}"
        case _:
            return "text"


def plain_scalar(text: str) -> str | int | float | bool | None:
    """Read an unquoted scalar by YAML 1.2's core schema: `no`, `on` and `12:30` are text.

    Raises:
        ValueError: a number that JSON cannot keep, with the reason.
    """
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number")
    is_integer, is_based = _INTEGER.fullmatch(text), _BASED.fullmatch(text)
    if not (is_integer or is_based or _FLOAT.fullmatch(text)):
        return text
    if len(text) > NUMBER_CHARS_MAX:
        raise ValueError(f"a number of {len(text)} characters is out of range")
    if is_integer:
        return int(text)
    if is_based:
        return int(text, 0)
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value
