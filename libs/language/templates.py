"""Rules of templates: in writes, questions, concurrency keys, probes and back-links, which placeholders there are."""

from collections.abc import Iterator
from typing import Final

from libs.language import nodes
from libs.language.interpolation import ITEM_ROOTS, ROOTS, is_unfinished, placeholders, roots
from libs.language.problems import hint
from libs.language.scalars import PATH
from libs.language.shapes import Checked, Place

_QUESTION_ROOTS: Final = ("context", "state", "run_id")
PROBE_ROOTS: Final = ("args", "key", "run_id")
BACK_LINK_ROOTS: Final = (*PROBE_ROOTS, "reference", "response", "run_url")
_WHOLE: Final = frozenset({"run_id", "index", "key", "reference", "run_url"})
"""Roots that have no parts."""


def check_args(step: Checked) -> None:
    """Note what is wrong with the templates in `args`. `{{args.*}}` reads the object of `args_from`."""
    if "args" not in step.values:
        return
    for place in _texts(step.at("args")):
        _check_template(
            place,
            _roots(step),
            has_args="args_from" in step.given,
            why="without `args_from` there are no args to read",
        )


def check_effect_key(step: Checked) -> None:
    """Note what is wrong with the effect key. `{{args.*}}` reads the arguments as they will be sent."""
    if "effect_key" not in step.values:
        return
    has_args = bool(step.given & {"args", "args_from"})
    place = step.at("effect_key")
    _check_template(place, _roots(step), has_args=has_args, why="this write has no arguments to read")
    if "for_each" in step.given and not _tells_items_apart(step):
        place.refuse(
            "is the same for every item, so only the first would be written; use {{index}}, {{item.<name>}}, or an "
            "argument that comes from the item"
        )


def check_concurrency_key(concurrency: Checked) -> None:
    """Note what is wrong with the key that runs are counted by, which is known before a run begins."""
    if "key" in concurrency.values:
        _check_template(concurrency.at("key"), ("context",), has_args=False, why="a run has no arguments")


def check_question(step: Checked) -> tuple[str, ...]:
    """Note what is wrong with the text of a question. Returns the sound paths in it that lead to earlier steps."""
    if "question" not in step.values:
        return ()
    known = (*_QUESTION_ROOTS, "steps")
    _check_template(step.at("question"), known, has_args=False, why="a question has no arguments")
    paths = [path for _, path in placeholders(step.get("question"))]
    return tuple(path for path in paths if path.startswith("steps.") and _objection(path, known) is None)


def check_probe(probe: Checked) -> None:
    """Note what is wrong with the templates of a probe, which read the write's own arguments."""
    for key in ("args", "match"):
        _check_object(probe, key, PROBE_ROOTS)


def check_back_link(link: Checked) -> None:
    """Note what is wrong with the templates of a back-link, which know the record that was written, too."""
    _check_object(link, "args", BACK_LINK_ROOTS)


def _check_object(checked: Checked, key: str, known: tuple[str, ...]) -> None:
    if key in checked.values:
        for place in _texts(checked.at(key)):
            _check_template(place, known, has_args=True, why="")


def _roots(step: Checked) -> tuple[str, ...]:
    return (*ROOTS, *ITEM_ROOTS) if "for_each" in step.given else ROOTS


def _tells_items_apart(step: Checked) -> bool:
    """Whether the effect key reads the item, its index, or an argument that does."""
    key = step.get("effect_key")
    if roots(key) & set(ITEM_ROOTS):
        return True
    args = step.get("args") or {}
    is_from_item = str(step.get("args_from") or "").partition(".")[0] == "item"
    from_item = {*ITEM_ROOTS, "args"} if is_from_item else {*ITEM_ROOTS}
    names = [path.split(".")[1] for _, path in placeholders(key) if path.startswith("args.")]
    return any(bool(roots(args[name]) & from_item) if name in args else is_from_item for name in names)


def _texts(place: Place) -> Iterator[Place]:
    """Every text at or below a place."""
    match place.node:
        case nodes.Scalar(value=str()):
            yield place
        case nodes.Sequence(items):
            for index, item in enumerate(items):
                yield from _texts(place.child(nodes.label(item, index), item, item.line))
        case nodes.Mapping(entries, lines):
            for key, item in entries.items():
                child = place.child(key, item, lines[key])
                if "{{" in key:
                    child.refuse("a placeholder cannot stand in a key, only in a value")
                yield from _texts(child)
        case _:
            pass


def _check_template(place: Place, known: tuple[str, ...], *, has_args: bool, why: str) -> None:
    assert isinstance(place.node, nodes.Scalar)
    template = str(place.node.value)
    if is_unfinished(template):
        place.refuse("`{{` without its `}}`; a placeholder is written {{context.jira_key}}")
    for _, path in placeholders(template):
        if objection := _objection(path, known):
            place.refuse(objection)
        elif path.startswith("args.") and not has_args:
            place.refuse(f"`{{{{{path}}}}}`: {why}")


def _objection(path: str, known: tuple[str, ...]) -> str | None:
    root, _, rest = path.partition(".")
    shown = f"`{{{{{path[:80]}}}}}`"
    if root not in known:
        if root in ITEM_ROOTS:
            return f"{shown}: there is an item only in a step with `for_each`"
        return f"{shown}: unknown root{hint(root, known)}"
    if root in _WHOLE:
        return f"{shown}: {root} has no parts; write {{{{{root}}}}}" if path != root else None
    if path == "item":
        return None
    if not rest or not PATH.fullmatch(path):
        return f"{shown}: write {{{{{root}.<name>}}}}, with the name of a value"
    if root == "state" and rest != "branch":
        return f"{shown}: there is no such state; known: state.branch"
    return None
