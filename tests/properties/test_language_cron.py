"""Cron slots against brute force: every minute round both changes of the clock, in three zones."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from libs.language.cron import Cron, CronError

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
ZONES = {
    "Europe/Berlin": ("2026-03-29T01:00", "2026-10-25T01:00"),
    "America/New_York": ("2026-03-08T07:00", "2026-11-01T06:00"),
    "Australia/Lord_Howe": ("2026-10-03T15:30", "2026-04-04T15:00"),
}
"""Zones with the moments, in UTC, at which their clocks are put forward and back."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line on whole minutes, with what it means written out."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    weekdays: frozenset[int]

    def wants(self, clock: datetime) -> bool:
        return clock.minute in self.minutes and clock.hour in self.hours and clock.isoweekday() % 7 in self.weekdays


def fields(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A field as text, and the values that it means."""
    values = st.integers(low, high)
    every = st.just(("*", frozenset(range(low, high + 1))))
    step = st.integers(1, high).map(lambda by: (f"*/{by}", frozenset(range(low, high + 1, by))))
    span = st.tuples(values, values).map(
        lambda ends: (f"{min(ends)}-{max(ends)}", frozenset(range(min(ends), max(ends) + 1)))
    )
    some = st.lists(values, min_size=1, max_size=4).map(lambda them: (",".join(map(str, them)), frozenset(them)))
    return every | step | span | some


PIECES = ["0", "1", "7", "*", "*/5", "1-5", "SUN", "JAN", "L", "#", "99", ",", "-", "/", "?"]
LINES = st.tuples(fields(0, 59), fields(0, 23), fields(0, 6)).map(
    lambda it: Line(f"0 {it[0][0]} {it[1][0]} * * {it[2][0]}", it[0][1], it[1][1], it[2][1])
)


def by_brute_force(line: Line, begin: datetime, end: datetime, zone: ZoneInfo) -> list[datetime]:
    """Every slot in (begin, end], found by looking at the clock once a minute."""
    if len(line.hours) == 24:
        return [moment for moment in minutes(begin, end) if line.wants(moment.astimezone(zone))]
    slots: list[datetime] = []
    reached = (begin - DAY).astimezone(zone).replace(tzinfo=None)
    for moment in minutes(begin - DAY, end):
        clock = moment.astimezone(zone).replace(tzinfo=None)
        wanted = False
        while reached < clock:  # one step, or all of a gap; no step in what is repeated
            reached += MINUTE
            wanted |= line.wants(reached)
        if wanted and moment > begin:
            slots.append(moment)
    return slots


def minutes(begin: datetime, end: datetime) -> Iterator[datetime]:
    moment = begin.replace(second=0)
    while (moment := moment + MINUTE) <= end:
        yield moment


@settings(deadline=None)  # brute force takes its time on a busy machine
@given(
    line=LINES,
    name=st.sampled_from(sorted(ZONES)),
    change=st.integers(0, 1),
    before=st.integers(-180, 240).map(lambda count: count * MINUTE),
)
@example(
    Line("0 * * * * *", frozenset(range(60)), frozenset(range(24)), frozenset(range(7))), "Europe/Berlin", 1, MINUTE
)
def test_slots_are_those_of_brute_force(line: Line, name: str, change: int, before: timedelta) -> None:
    zone = ZoneInfo(name)
    begin = datetime.fromisoformat(ZONES[name][change]).replace(tzinfo=UTC) - before
    expected = by_brute_force(line, begin, begin + timedelta(hours=6), zone)[:40]
    found = Cron.parse(line.text).next_slots(len(expected) or 1, after=begin, zone=zone)
    if expected:
        assert [slot.due_at for slot in found] == expected
    else:
        assert found[0].due_at > begin + timedelta(hours=6)


@pytest.mark.parametrize("name", ZONES)
def test_a_year_of_days_and_of_hours(name: str) -> None:
    """A daily line fires once on each day of the clock; an hourly one as often as hours begin on it."""
    zone = ZoneInfo(name)
    begin = datetime(2026, 1, 1, tzinfo=zone).astimezone(UTC) - MINUTE
    daily = Cron.parse("0 15 2 * * *").next_slots(365, after=begin, zone=zone)
    assert [slot.local[:10] for slot in daily] == [(date(2026, 1, 1) + count * DAY).isoformat() for count in range(365)]
    hours = [moment for moment in minutes(begin, begin + 365 * DAY) if moment.astimezone(zone).minute == 0]
    hourly = Cron.parse("0 0 * * * *").next_slots(len(hours), after=begin, zone=zone)
    assert [slot.due_at for slot in hourly] == hours


@given(st.text(max_size=30) | st.lists(st.sampled_from(PIECES), max_size=8).map(" ".join))
def test_a_line_is_read_or_refused_and_what_is_read_has_a_next_slot(text: str) -> None:
    try:
        cron = Cron.parse(text)
    except CronError:
        return
    begin = datetime(2026, 11, 29, tzinfo=UTC)
    assert cron.after(begin, ZoneInfo("Europe/Berlin")).due_at > begin
