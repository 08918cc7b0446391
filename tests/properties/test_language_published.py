"""Whatever the loader takes, the published schema takes: an editor never marks what a sync would store."""

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from contracts.errors import Rejected
from libs.language.loader import load_folder
from libs.language.nodes import plain
from libs.language.problems import Problems
from libs.language.published import published_schema
from libs.language.reader import read
from tests.unit.test_language_whole import FILES

FILE = "workflows/whole/workflow.yaml"
VALIDATOR = Draft202012Validator(published_schema("workflow"))


def _whole() -> Any:
    node = read(FILE, FILES[FILE], Problems(), path="workflow")
    assert node is not None
    return plain(node)


WHOLE = _whole()


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything below a value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


VALUES = st.sampled_from(
    [None, True, False, 0, 1, 2, 51, 0.5, "", "x", "1", "0.5", "2h", "0s", "all", "any", "skip", "agent", "gate",
     "jira", "context.a", "steps.brief.x", "{{item}}", "{{context.deal}}", "$context.deal", "prompts/p.md",
     "schemas/s.json", "2026-03-02T09:00:00Z", "UTC", "0 0 7 * * 1", [], ["x"], [1], {}, {"for": "1h"},
     {"items": "context.l"}]
)  # fmt: skip
CHANGES = st.lists(st.tuples(st.sampled_from([*places(WHOLE)]), VALUES | st.just(...)), min_size=1, max_size=3)


def changed(changes: list[tuple[tuple[Any, ...], Any]]) -> Any:
    """The whole example with values at these places, or without what stands there."""
    value = copy.deepcopy(WHOLE)
    for path, new in changes:
        at = value
        with contextlib.suppress(KeyError, IndexError, TypeError):  # gone, or become something else, by another change
            for part in path[:-1]:
                at = at[part]
            if new is ...:
                del at[path[-1]]
            elif path[-1] in (at if isinstance(at, dict) else range(len(at))):
                at[path[-1]] = copy.deepcopy(new)
    return value


@settings(deadline=None)  # a load takes 20 ms here, and ten times that on a busy machine
@given(CHANGES)
def test_an_editor_takes_what_the_loader_takes(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    value = changed(changes)
    try:
        load_folder({**FILES, FILE: json.dumps(value)})  # JSON is YAML
    except Rejected:
        event("refused")
        return
    event("loaded")
    assert [error.message for error in VALIDATOR.iter_errors(value)] == []
