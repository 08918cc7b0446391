"""Placeholders in the arguments and the key of a write, and in the text of a question.

There are `{{args.title}}`, `{{context.jira_key}}`, `{{state.branch}}` and `{{run_id}}`, and in a step that is done once
per item `{{item}}`, `{{item.title}}` and `{{index}}`; a question reads `{{steps.design.title}}` too. The loader refuses
others.
"""

import json
import re
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from contracts.base import JsonObject, JsonValue
from contracts.errors import Rejected
from libs.language.paths import MISSING, resolve
from minutebook.models.problem import ProblemItem

ROOTS: Final = ("args", "context", "state", "run_id")
ITEM_ROOTS: Final = ("item", "index")
"""Roots of a step with `for_each` beside those."""

_PLACEHOLDER: Final = re.compile(r"\{\{([^{}]*)\}\}")


def interpolate(
    value: JsonValue,
    *,
    args: JsonValue,
    context: JsonObject,
    state: JsonObject,
    run_id: UUID | str,
    item: JsonValue = None,
    index: int | None = None,
    steps: JsonObject | None = None,
) -> JsonValue:
    """Fill in the placeholders of every text in a value, once: what was filled in is never read again.

    `item` and `index`, from 0, are of a step that is done once per item, `steps` the outputs of earlier ones. Text that
    is one placeholder and nothing else becomes the value itself, of its own type. Keys are left alone.

    Raises:
        contracts.errors.Rejected: ``template.unset`` (422), a placeholder whose value is missing or null;
            ``template.not_text`` (422), an object or a list in the middle of text. Both name the placeholder.
    """
    scope: JsonObject = {
        "args": args,
        "context": context,
        "state": state,
        "run_id": str(run_id),
        "item": item,
        "index": index,
        "steps": steps,
    }
    return fill(value, scope)


def fill(value: JsonValue, scope: JsonObject) -> JsonValue:
    """Fill in placeholders from a scope of the caller's own, as `interpolate` does.

    Raises:
        contracts.errors.Rejected: as `interpolate` does.
    """
    return _filled(value, scope)


def placeholders(value: JsonValue, at: str = "") -> Iterator[tuple[str, str]]:
    """Every placeholder in a value as (path of the text that holds it, what stands between the braces)."""
    match value:
        case str():
            yield from ((at, found[1].strip()) for found in _PLACEHOLDER.finditer(value))
        case list():
            for index, item in enumerate(value):
                yield from placeholders(item, f"{at}.{index}" if at else str(index))
        case dict():
            for key, item in value.items():
                yield from placeholders(item, f"{at}.{key}" if at else key)
        case _:
            pass


def roots(value: JsonValue) -> frozenset[str]:
    """The first segments of all placeholders in a value."""
    return frozenset(path.partition(".")[0] for _, path in placeholders(value))


def is_unfinished(text: str) -> bool:
    """Whether braces are left over that no placeholder explains: `{{context.jira_key}`."""
    return "{{" in _PLACEHOLDER.sub("", text)


def _filled(value: JsonValue, scope: JsonObject) -> JsonValue:
    match value:
        case str():
            alone = _PLACEHOLDER.fullmatch(value)
            return _value(alone[1].strip(), scope) if alone else _text(value, scope)
        case list():
            return [_filled(item, scope) for item in value]
        case dict():
            return {key: _filled(item, scope) for key, item in value.items()}
        case _:
            return value


def _text(template: str, scope: JsonObject) -> str:
    return _PLACEHOLDER.sub(lambda found: _as_text(found[1].strip(), scope), template)


def _as_text(path: str, scope: JsonObject) -> str:
    value = _value(path, scope)
    if isinstance(value, (dict, list)):
        message = f"`{path}` is {'an object' if isinstance(value, dict) else 'a list'}; it cannot stand inside text"
        raise Rejected("template.not_text", message, status=422, errors=(ProblemItem(path=path, message=message),))
    return value if isinstance(value, str) else json.dumps(value)


def _value(path: str, scope: JsonObject) -> JsonValue:
    value = resolve(path, scope)
    if value is None or value is MISSING:
        message = f"`{path}` is not set; set it, or take the placeholder out of the definition"
        raise Rejected("template.unset", message, status=422, errors=(ProblemItem(path=path, message=message),))
    return value


__all__ = ["ITEM_ROOTS", "MISSING", "ROOTS", "fill", "interpolate", "is_unfinished", "placeholders", "resolve", "roots"]
