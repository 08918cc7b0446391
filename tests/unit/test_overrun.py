"""When a stream's limits took messages that a durable had not consumed."""

from libs.bus.overrun import Overruns, Reading


def reading(first: int, last: int, settled_to: int, *, idle: bool = False, consumed: bool = True) -> Reading:
    return Reading(first=first, last=last, settled_to=settled_to, idle=idle, consumed=consumed)


def test_a_durable_that_keeps_up_loses_nothing_to_age() -> None:
    overruns = Overruns()
    assert not overruns.take("d", reading(1, 10, 10, idle=True))
    assert not overruns.take("d", reading(11, 10, 10, idle=True))
    assert not overruns.take("d", reading(9, 20, 15))


def test_a_durable_of_rare_subjects_is_safe_up_to_where_it_was_idle() -> None:
    overruns = Overruns()
    assert not overruns.take("d", reading(1, 5_000, 3, idle=True))
    assert not overruns.take("d", reading(4_900, 9_000, 3, idle=True))


def test_what_was_dropped_unconsumed_is_told_once() -> None:
    overruns = Overruns()
    assert not overruns.take("d", reading(1, 100, 10))
    assert overruns.take("d", reading(50, 200, 10))
    assert not overruns.take("d", reading(50, 200, 10))
    assert not overruns.take("d", reading(50, 200, 200, idle=True))


def test_it_is_told_when_somebody_consumes_again() -> None:
    overruns = Overruns()
    assert not overruns.take("d", reading(1, 100, 10, consumed=False))
    assert not overruns.take("d", reading(101, 100, 10, idle=True, consumed=False))
    assert not overruns.take("d", reading(150, 180, 10, consumed=False))
    assert overruns.take("d", reading(160, 190, 170))
    assert not overruns.take("d", reading(170, 190, 190, idle=True))


def test_a_durable_that_was_never_seen_is_judged_by_what_it_settled() -> None:
    assert Overruns().take("d", reading(50, 200, 10))
    assert not Overruns().take("d", reading(50, 200, 49))


def test_a_stream_made_anew_is_no_overrun() -> None:
    overruns = Overruns()
    assert not overruns.take("d", reading(1, 5_000, 5_000, idle=True))
    assert not overruns.take("d", reading(1, 3, 0))
    assert not overruns.take("d", reading(1, 4, 4, idle=True))
