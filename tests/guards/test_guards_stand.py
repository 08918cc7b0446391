"""Every guard stands where the list says, once, and every test that would miss it is there."""

import ast
from pathlib import Path
from typing import Final

import pytest

from tests.guards.guards import GUARDS, Guard

ROOT: Final = Path(__file__).parents[2]


def named(guard: Guard) -> str:
    return guard.sentence


@pytest.mark.parametrize("guard", GUARDS, ids=named)
def test_what_would_be_taken_away_stands_exactly_once(guard: Guard) -> None:
    for change in guard.changes:
        source = (ROOT / change.file).read_text()
        assert source.count(change.text) == 1, f"{change.file}: {change.text!r}"
        assert change.text != change.instead


@pytest.mark.parametrize("guard", GUARDS, ids=named)
def test_the_tests_that_would_miss_it_are_there(guard: Guard) -> None:
    assert guard.tests
    for test in guard.tests:
        file, _, name = test.partition("::")
        tree = ast.parse((ROOT / file).read_text())
        functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in functions, test


def test_no_sentence_stands_twice() -> None:
    assert len({guard.sentence for guard in GUARDS}) == len(GUARDS)
