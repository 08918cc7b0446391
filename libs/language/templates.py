"""Rules of the templates in a write step: which placeholders there are, and where."""

from collections.abc import Iterator

from libs.language import nodes
from libs.language.interpolation import ROOTS, is_unfinished, placeholders
from libs.language.problems import hint
from libs.language.scalars import PATH
from libs.language.shapes import Checked, Place


def check_args(step: Checked) -> None:
    """Note what is wrong with the templates in `args`. `{{args.*}}` reads the object of `args_from`."""
    if "args" not in step.values:
        return
    for place in _texts(step.at("args")):
        _check_template(place, has_args="args_from" in step.given, why="without `args_from` there are no args to read")


def check_effect_key(step: Checked) -> None:
    """Note what is wrong with the effect key. `{{args.*}}` reads the arguments as they will be sent."""
    if "effect_key" in step.values:
        has_args = bool(step.given & {"args", "args_from"})
        _check_template(step.at("effect_key"), has_args=has_args, why="this write has no arguments to read")


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


def _check_template(place: Place, *, has_args: bool, why: str) -> None:
    assert isinstance(place.node, nodes.Scalar)
    template = str(place.node.value)
    if is_unfinished(template):
        place.refuse("`{{` without its `}}`; a placeholder is written {{context.jira_key}}")
    for _, path in placeholders(template):
        if objection := _objection(path):
            place.refuse(objection)
        elif path.startswith("args.") and not has_args:
            place.refuse(f"`{{{{{path}}}}}`: {why}")


def _objection(path: str) -> str | None:
    root, _, rest = path.partition(".")
    shown = f"`{{{{{path[:80]}}}}}`"
    if root not in ROOTS:
        return f"{shown}: unknown root{hint(root, ROOTS)}"
    if root == "run_id":
        return f"{shown}: run_id has no parts; write {{{{run_id}}}}" if path != "run_id" else None
    if not rest or not PATH.fullmatch(path):
        return f"{shown}: write {{{{{root}.<name>}}}}, with the name of a value"
    if root == "state" and rest != "branch":
        return f"{shown}: there is no such state; known: state.branch"
    return None
