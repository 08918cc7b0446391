"""YAML 1.2 text → nodes with lines. Stricter than YAML: what can surprise an author is refused.

Refused: repeated keys, anchors and aliases, tags, directives, several documents, tabs as indentation, keys that are
not text, numbers that are not finite, characters that JSON cannot keep, and what is too large or too deep. Events are
read one by one, so a limit holds before the rest of the file is looked at.
"""

import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from libs.language.nodes import Mapping, Node, Scalar, Sequence, label, plain_scalar
from libs.language.problems import Problems

FILE_CHARS_MAX = 200_000
"""Of a prompt or a schema."""

YAML_CHARS_MAX = 64_000
VALUES_MAX = 10_000
"""Of a YAML file. Reading YAML takes some 50 µs per value: a file at the limit takes half a second."""

DEPTH_MAX = 24


_ODD_BREAK = re.compile("[\x85\u2028\u2029]")
"""Line breaks of YAML 1.1 that are plain characters in 1.2. The library breaks lines there, so texts would change."""


class _RefusedError(Exception):
    """The rest of the document cannot be understood."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


def normalise(text: str) -> str:
    """Text as every file is kept: without a byte order mark, lines ended by a line feed."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def unkeepable(text: str) -> str | None:
    """Why this text cannot be kept by JSON and PostgreSQL, None when it can."""
    if "\x00" in text:
        return "holds a NUL character; remove it"
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        return "holds half of a surrogate pair; write the character itself"
    return None


def read(file: str, text: str, problems: Problems, *, path: str) -> Node | None:
    """Read one document. Returns None after noting why it cannot be read; `path` names the document in problems."""
    if len(text) > YAML_CHARS_MAX:
        problems.add(file, None, path, f"{len(text)} characters; at most {YAML_CHARS_MAX} of YAML are read")
        return None
    if odd := _ODD_BREAK.search(text):
        line, code = text.count("\n", 0, odd.start()) + 1, ord(odd.group())
        problems.add(file, line, path, f'U+{code:04X} is not a line break of YAML 1.2; write it as "\\u{code:04x}"')
        return None
    try:
        node = _Reader(normalise(text)).document()
    except _RefusedError as error:
        problems.add(file, error.line, path, error.message)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = error.problem or error.context or "not YAML"
        if "'\\t'" in reason:
            reason = "a tab cannot indent or separate; use spaces"
        problems.add(file, mark.line + 1 if mark else None, path, f"not YAML: {reason}")
    except (YAMLError, OverflowError, ValueError):
        problems.add(file, None, path, "not YAML: a character or an escape in it is not allowed")
    else:
        for where, line, message in _defects(node, ""):
            problems.add(file, line, _shown(node, path, where), message)
        return node
    return None


class _Reader:
    """One pass over the events of one document. What harms one value only is kept as its defect."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = iter(YAML(typ="safe", pure=True).parse(text))
        self._values = 0

    def document(self) -> Node:
        node: Node | None = None
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                if event.version or event.tags:
                    raise _RefusedError(_line(event), "directives are not supported; YAML is always read as 1.2")
                if node is not None:
                    raise _RefusedError(_line(event), "a file holds one document; remove what follows `---`")
                node = self._node(next(self._events), 1)
        if node is None:
            raise _RefusedError(1, "the file is empty")
        return node

    def _node(self, event: Any, depth: int) -> Node:
        self._values += 1
        if self._values > VALUES_MAX:
            raise _RefusedError(_line(event), f"more than {VALUES_MAX} keys and values")
        if depth > DEPTH_MAX:
            raise _RefusedError(_line(event), f"nested deeper than {DEPTH_MAX} levels")
        if isinstance(event, AliasEvent) or event.anchor:
            raise _RefusedError(_line(event), "anchors and aliases are not supported; write the value out")
        if event.tag:
            raise _RefusedError(_line(event), f"the tag `{event.tag}` is not supported; remove it")
        if isinstance(event, MappingStartEvent):
            return self._mapping(event, depth)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(event, depth)
        return _scalar(event)

    def _mapping(self, start: Any, depth: int) -> Mapping:
        entries: dict[str, Node] = {}
        lines: dict[str, int] = {}
        defects: list[tuple[str, int, str]] = []
        for event in self._events:
            if isinstance(event, MappingEndEvent):
                break
            line = _line(event)
            name = self._node(event, depth + 1)
            if not isinstance(name, Scalar):
                raise _RefusedError(line, "a key must be text")
            key = name.value if isinstance(name.value, str) else name.text
            if name.defect or name.value != key:
                defects.append((key, line, name.defect or f"the key `{key[:40]}` is not text; quote it"))
            node = self._node(next(self._events), depth + 1)
            if key in entries:
                defects.append((key, line, f"the key is repeated; it stands already in line {lines[key]}"))
            else:
                entries[key], lines[key] = node, line
        return Mapping(entries, lines, _line(start), tuple(defects))

    def _sequence(self, start: Any, depth: int) -> Sequence:
        items: list[Node] = []
        for event in self._events:
            if isinstance(event, SequenceEndEvent):
                break
            items.append(self._node(event, depth + 1))
        return Sequence(tuple(items), _line(start))


def _scalar(event: Any) -> Scalar:
    text: str = event.value
    line = _line(event)
    if reason := unkeepable(text):
        return Scalar("", "", line, f"the text {reason}")
    if event.style is not None:
        return Scalar(text, text, line)
    try:
        return Scalar(plain_scalar(text), text, line)
    except ValueError as error:
        return Scalar(None, text, line, str(error))


def _defects(node: Node, path: str) -> Iterator[tuple[str, int, str]]:
    """Every defect below a node as (path, line, message)."""
    match node:
        case Scalar():
            if node.defect:
                yield path, node.line, node.defect
        case Sequence():
            for index, item in enumerate(node.items):
                yield from _defects(item, f"{path}.{label(item, index)}")
        case Mapping():
            for key, line, message in node.defects:
                yield f"{path}.{key}" if path else key, line, message
            for key, value in node.entries.items():
                yield from _defects(value, f"{path}.{key}" if path else key)


def _shown(document: Node, root: str, path: str) -> str:
    """A path without the file's one top key, when that holds a mapping; the document's name for the document itself."""
    if isinstance(document, Mapping) and isinstance(document.entries.get(root), Mapping):
        path = path.removeprefix(f"{root}.")
    return path or root


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
