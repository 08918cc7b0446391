"""Errors and messages: one total function, and reading that never quotes what it read."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from contracts.errors import (
    Broken,
    Conflict,
    Malformed,
    MinutebookError,
    Rejected,
    Stopping,
    Unavailable,
)
from libs.bus.disposition import BACKOFF_FIRST, BACKOFF_MAX, backoff, of, parse


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (Rejected("test.no", "no", status=409), "ack"),
        (Conflict("test.lost", "lost"), "nak"),
        (Unavailable("test.gone", "gone"), "nak"),
        (Stopping("test.stop", "stop"), "nak"),
        (Malformed("test.read", "unread"), "term"),
        (Broken("test.bug", "bug"), "term"),
        (MinutebookError("test.base", "base"), "term"),
        (ZeroDivisionError(), "term"),
        (TimeoutError(), "term"),
    ],
)
def test_every_error_has_one_verdict(error: Exception, verdict: str) -> None:
    assert of(error).verdict == verdict


def test_every_kind_of_error_of_the_tree_is_mapped_on_purpose() -> None:
    kinds = {kind.__name__ for kind in MinutebookError.__subclasses__()}
    assert kinds == {"Rejected", "Conflict", "Unavailable", "Malformed", "Broken", "Stopping"}


def test_what_is_handed_back_comes_again_at_once_and_a_lost_race_almost() -> None:
    assert of(Stopping("test.stop", "stop"), deliveries=9).delay == timedelta(0)
    assert timedelta(0) < of(Conflict("test.lost", "lost"), deliveries=9).delay <= timedelta(milliseconds=100)


@given(st.integers(min_value=-1, max_value=10**9))
def test_backoff_doubles_with_jitter_up_to_its_cap(deliveries: int) -> None:
    ceiling = min(BACKOFF_FIRST * 2 ** min(max(deliveries - 1, 0), 20), BACKOFF_MAX)
    assert ceiling / 2 <= backoff(deliveries) <= ceiling
    assert of(Unavailable("test.gone", "gone"), deliveries=deliveries).delay <= BACKOFF_MAX


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Inner
    names: tuple[str, ...] = ()


def test_parse_reads_what_the_subject_promises() -> None:
    assert parse(Outer, b'{"inner": {"number": 1}, "names": ["a"]}') == Outer(inner=Inner(number=1), names=("a",))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "message: json_invalid"),
        (b"sesame", "message: json_invalid"),
        (b'"sesame"', "message: model_type"),
        (b"{}", "inner: missing"),
        (b'{"inner": {"number": "sesame"}}', "inner: int_parsing"),
        (b'{"inner": {"number": 1}, "sesame": 1}', "unknown key: extra_forbidden"),
        (b'{"inner": {"number": 1, "sesame": 1}}', "inner: extra_forbidden"),
        (b'{"inner": {"number": 1}, "names": [1,2,3,4,5,6,7]}', "and 2 more"),
    ],
)
def test_what_cannot_be_read_is_malformed_and_never_quoted(data: bytes, reason: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse(Outer, data)
    assert reason in caught.value.message
    assert "sesame" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
