"""States copied with changes: as the library does it, for every state that there is."""

import dataclasses
from typing import Any

import pytest

from libs.domain.categories import CATEGORIES
from libs.domain.core import replace
from libs.domain.run.state import StepRecord

STATES: list[Any] = [*(category.initial for category in CATEGORIES.values()), StepRecord()]


@pytest.mark.parametrize("state", STATES, ids=lambda state: f"{type(state).__module__}.{type(state).__name__}")
def test_a_copy_is_what_the_library_makes(state: Any) -> None:
    for field in dataclasses.fields(state):
        copy = replace(state, **{field.name: "changed"})
        assert copy == dataclasses.replace(state, **{field.name: "changed"})
        assert copy != state
    assert replace(state) == state


def test_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KeyError):
        replace(StepRecord(), no_such="x")  # type: ignore[call-arg]
