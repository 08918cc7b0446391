"""Which events a match asks for."""

import pytest

from contracts.base import JsonObject
from libs.language.matching import matches

KEYS: JsonObject = {"to": "Ready", "project": "FERRY", "count": 1, "urgent": True, "none": None}


@pytest.mark.parametrize(
    "match",
    [
        {},
        {"event": "issue_transitioned"},
        {"event": "issue_transitioned", "to": "Ready"},
        {"event": ["issue_created", "issue_transitioned"], "to": ["Ready", "Done"]},
        {"count": 1},
        {"count": 1.0},
        {"urgent": True},
    ],
)
def test_a_match(match: JsonObject) -> None:
    assert matches(match, "issue_transitioned", KEYS)


@pytest.mark.parametrize(
    "match",
    [
        {"event": "issue_created"},
        {"event": "issue_transitioned", "to": "ready"},
        {"to": "Ready "},
        {"to": []},
        {"gone": "x"},
        {"gone": None},
        {"none": None},
        {"count": "1"},
        {"count": True},
        {"urgent": 1},
        {"to": ["Done"], "project": "FERRY"},
    ],
)
def test_no_match(match: JsonObject) -> None:
    assert not matches(match, "issue_transitioned", KEYS)


def test_the_name_of_the_event_is_never_taken_from_its_keys() -> None:
    assert not matches({"event": "issue_deleted"}, "issue_created", {"event": "issue_deleted"})
