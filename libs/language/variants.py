"""Variants: the workflow as each of them changes it, checked whole.

An override is a dotted path with a value. `context.<key>` sets what the run's own context is laid over; every other
path walks the workflow, names elements of lists by their key, and must lead to what is there, or to a key that may be
there. The changed workflow passes every check of the written one; what is wrong is told at the override.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from contracts.base import JsonObject
from libs.language import nodes
from libs.language.grammar import WORKFLOW
from libs.language.problems import Problems, hint
from libs.language.scalars import KEY
from libs.language.shapes import Checked, Place, fill

VARIANTS_MAX: Final = 20
"""Each is checked, kept and shown as a whole workflow."""

_FIXED: Final = frozenset({"id", "enabled", "triggers", "run_as", "variants"})
"""What is decided before a run has a variant."""


@dataclass(slots=True)
class Variant:
    """A workflow with the overrides of one variant. `context` are its defaults; `problems` are its own, untold yet."""

    name: str
    place: Place
    workflow: Checked
    problems: Problems
    overrides: dict[str, Place] = field(default_factory=dict)
    context: JsonObject = field(default_factory=dict)

    def tell(self, written: Problems) -> None:
        """Note what the overrides have made wrong; what was wrong before them is told already."""
        for item in self.problems:
            if item in written:
                continue
            if item.file != self.place.file:
                written.add(item.file or "", item.line, item.path, item.message)
                continue
            cause = self._cause(item.path)
            at = self.place if cause is None else self.overrides[cause]
            if cause is not None and f"{item.path}.".startswith(f"{cause}."):
                written.add(at.file, item.line, f"{self.place.path}.{item.path}", item.message)
            else:
                at.refuse(f"{item.path}: {item.message}")

    def _cause(self, path: str) -> str | None:
        """The override that has to do with a problem: the one at or above it, or the only one."""
        above = [override for override in self.overrides if f"{path}.".startswith(f"{override}.")]
        if above:
            return max(above, key=len)
        return next(iter(self.overrides)) if len(self.overrides) == 1 else None


def derive(workflow: Checked) -> Iterator[Variant]:
    """Each variant of a workflow, with the structure of the changed one checked. Overrides that fail are noted."""
    whole, table = workflow.place.node, workflow.at("variants").node
    if not isinstance(whole, nodes.Mapping) or not isinstance(table, nodes.Mapping):
        return
    if len(table.entries) > VARIANTS_MAX:
        workflow.refuse("variants", f"{len(table.entries)} variants; at most {VARIANTS_MAX} are read")
        return
    for name in workflow.get("variants") or {}:
        overrides = table.entries[name]
        place = workflow.at("variants").child(name, overrides, table.lines[name])
        if isinstance(overrides, nodes.Mapping):
            yield _variant(workflow, name, place, whole, overrides)


def _variant(workflow: Checked, name: str, place: Place, whole: nodes.Mapping, overrides: nodes.Mapping) -> Variant:
    """Apply the overrides, short paths first: the order in which they are written means nothing."""
    passed = workflow.get("variants")[name]
    applied: dict[str, Place] = {}
    context: JsonObject = {}
    changed = whole
    for path in sorted(passed, key=lambda path: (path.count("."), path)):
        at = place.child(path, overrides.entries[path], overrides.lines[path])
        first, *rest = path.split(".")
        if first == "context" and len(rest) == 1 and KEY.fullmatch(rest[0]):
            context[rest[0]] = passed[path]
        elif first in _FIXED:
            at.refuse(f"`{first}` is the same in all variants; only what a run does can differ")
        elif objection := _objection(changed, path.split(".")):
            at.refuse(objection)
        else:
            changed = _with(changed, path.split("."), at)
            applied[path] = at
    problems = Problems()
    derived = fill(Place(place.file, "", changed, workflow.place.line, problems), changed, WORKFLOW)
    return Variant(name, place, derived, problems, applied, context)


def _objection(node: nodes.Node, path: list[str]) -> str | None:
    """Why a path leads nowhere: the first part of it that is not there. A key of a mapping may be new."""
    for depth, part in enumerate(path):
        known = _children(node)
        if part not in known:
            if isinstance(node, nodes.Mapping) and depth == len(path) - 1:
                return None
            before = ".".join(path[:depth]) or "the workflow"
            return f"names nothing: {before} has no `{part[:64]}`{hint(part, known)}"
        node = known[part]
    return None


def _children(node: nodes.Node) -> dict[str, nodes.Node]:
    match node:
        case nodes.Mapping(entries):
            return dict(entries)
        case nodes.Sequence(items):
            return {nodes.label(item, index): item for index, item in enumerate(items)}
        case nodes.Scalar():
            return {}


def _with(node: nodes.Mapping, path: list[str], value: Place) -> nodes.Mapping:
    """A mapping in which a path, which leads somewhere, has another value."""
    part, *rest = path
    child = _replaced(node.entries[part], rest, value) if rest else value.node
    lines = node.lines if rest else {**node.lines, part: value.line}
    return nodes.Mapping({**node.entries, part: child}, lines, node.line, node.defects)


def _replaced(node: nodes.Node, path: list[str], value: Place) -> nodes.Node:
    if isinstance(node, nodes.Mapping):
        return _with(node, path, value)
    assert isinstance(node, nodes.Sequence), "a path was seen to lead on from here"
    part, *rest = path
    items = [
        (_replaced(item, rest, value) if rest else value.node) if nodes.label(item, index) == part else item
        for index, item in enumerate(node.items)
    ]
    return nodes.Sequence(tuple(items), node.line)
