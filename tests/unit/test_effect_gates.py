"""When a server may be called, on a clock of the test's own."""

from uuid import UUID

from services.effects.gates import Gate, Gates, Limits

SERVER = (UUID(int=1), "github")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def gate(clock: Clock, **limits: float) -> Gate:
    return Gates(clock).of(SERVER, Limits(**limits))  # type: ignore[arg-type]


def test_a_rate_counts_any_window() -> None:
    clock = Clock()
    one = gate(clock, rate_calls=2, rate_seconds=10)
    for moment in (0.0, 4.0):
        clock.now = moment
        assert one.admits(0, at_most=8)
        one.enter()
    assert not one.admits(0, at_most=8)
    assert one.opens_at() == 10.0
    clock.now = 10.0
    assert one.admits(0, at_most=8)
    one.enter()
    assert one.opens_at() == 14.0


def test_a_breaker_opens_after_calls_in_a_row_that_were_not_sent_and_half_opens_with_one() -> None:
    clock = Clock()
    one = gate(clock, breaker_failures=3, breaker_cooldown_seconds=30)
    for sent in (False, False, True, False, False):
        one.note(sent=sent)
    assert one.admits(5, at_most=8), "one that was sent begins the count anew"
    one.note(sent=False)
    assert not one.admits(0, at_most=8)
    assert one.opens_at() == 30.0
    clock.now = 30.0
    assert one.admits(0, at_most=8)
    assert not one.admits(1, at_most=8), "one call at a time finds out"
    one.note(sent=False)
    assert one.opens_at() == 60.0
    clock.now = 60.0
    one.note(sent=True)
    assert one.admits(3, at_most=8)


def test_looks_count_as_calls() -> None:
    one = gate(Clock(), concurrency=2)
    one.asking = 1
    assert one.admits(0, at_most=8)
    assert not one.admits(1, at_most=8)


def test_what_is_declared_anew_counts_at_once() -> None:
    gates = Gates(Clock())
    assert gates.of(SERVER, Limits(concurrency=1)).admits(1, at_most=8) is False
    assert gates.of(SERVER, Limits(concurrency=2)).admits(1, at_most=8) is True
