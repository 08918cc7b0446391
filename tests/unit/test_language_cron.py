"""Cron lines: what is read, what is refused and why, and the next slots over changes of the clock."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from libs.language.cron import Cron, CronError

BERLIN = ZoneInfo("Europe/Berlin")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
HAVANA = ZoneInfo("America/Havana")
APIA = ZoneInfo("Pacific/Apia")


def slots(line: str, zone: ZoneInfo, after: str, count: int = 3) -> list[str]:
    found = Cron.parse(line).next_slots(count, after=datetime.fromisoformat(after).astimezone(UTC), zone=zone)
    assert all(datetime.fromisoformat(slot.local) == slot.due_at and slot.due_at.tzinfo is UTC for slot in found)
    return [slot.local for slot in found]


def test_seconds_come_first_and_the_time_is_that_of_the_zone() -> None:
    assert slots("0 0 7 * * 1", BERLIN, "2026-03-20T00:00Z", 5) == [
        "2026-03-23T07:00:00+01:00",
        "2026-03-30T07:00:00+02:00",
        "2026-04-06T07:00:00+02:00",
        "2026-04-13T07:00:00+02:00",
        "2026-04-20T07:00:00+02:00",
    ]


@pytest.mark.parametrize("sunday", ["0", "7", "SUN", "sun"])
def test_sunday_has_two_numbers_and_a_name(sunday: str) -> None:
    assert slots(f"0 0 7 * * {sunday}", BERLIN, "2026-11-23T00:00Z", 2) == [
        "2026-11-29T07:00:00+01:00",
        "2026-12-06T07:00:00+01:00",
    ]


@pytest.mark.parametrize(
    "line, days",
    [
        ("0 0 7 * * MON-FRI", [23, 24, 25, 26, 27]),
        ("0 0 7 * * 5-7", [27, 28, 29]),
        ("0 0 7 * * SAT-SUN", [28, 29]),
        ("0 0 7 * * 1-1", [23]),
        ("0 0 7 * * SUN-MON", [23, 29]),
        ("0 0 7 * * SUN-SUN", [29]),
        ("0 0 7 * * 0-7", [23, 24, 25, 26, 27, 28, 29]),
        ("0 0 7 23-24 * *", [23, 24]),
        ("0 0 7 25 * MON", [23, 25]),
        ("0 0 7 */10 NOV,DEC *", []),
        ("0 0 7 23/2 * *", [23, 25, 27, 29]),
    ],
)
def test_the_days_of_a_week(line: str, days: list[int]) -> None:
    """Monday 23 to Sunday 29 November 2026."""
    found = slots(line, BERLIN, "2026-11-22T12:00Z", 7)
    assert [int(local[8:10]) for local in found if local < "2026-11-30"] == days


def test_a_slot_is_later_than_the_moment_and_fractions_do_not_repeat_it() -> None:
    assert slots("0 0 7 * * *", BERLIN, "2026-11-29T06:00:00Z", 1) == ["2026-11-30T07:00:00+01:00"]
    assert slots("0 0 7 * * *", BERLIN, "2026-11-29T06:00:00.5Z", 1) == ["2026-11-30T07:00:00+01:00"]
    assert slots("0 0 7 * * *", BERLIN, "2026-11-29T05:59:59.999999Z", 1) == ["2026-11-29T07:00:00+01:00"]


def test_seconds_within_a_minute() -> None:
    assert slots("5/25 59 6 * * *", BERLIN, "2026-11-29T05:59:06Z", 4) == [
        "2026-11-29T06:59:30+01:00",
        "2026-11-29T06:59:55+01:00",
        "2026-11-30T06:59:05+01:00",
        "2026-11-30T06:59:30+01:00",
    ]


def test_29_february_comes_every_four_years() -> None:
    assert slots("0 0 7 29 2 *", BERLIN, "2026-01-01T00:00Z", 2) == [
        "2028-02-29T07:00:00+01:00",
        "2032-02-29T07:00:00+01:00",
    ]


# --- the clock is changed ------------------------------------------------------------------------------------------


def test_an_appointment_in_a_repeated_hour_is_kept_once() -> None:
    assert slots("0 30 2 * * *", BERLIN, "2026-10-24T12:00Z", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]
    in_the_second_hour = "2026-10-25T01:10Z"
    assert slots("0 30 2 * * *", BERLIN, in_the_second_hour, 1) == ["2026-10-26T02:30:00+01:00"]


def test_an_appointment_that_does_not_come_is_kept_at_once_after_the_gap() -> None:
    assert slots("0 30 2 * * *", BERLIN, "2026-03-28T12:00Z", 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]
    assert slots("0 15 2 * * *", LORD_HOWE, "2026-10-03T12:00Z", 1) == ["2026-10-04T02:30:00+11:00"]


def test_what_falls_on_one_moment_after_the_gap_is_one_slot() -> None:
    assert slots("0 */20 2-3 * * *", BERLIN, "2026-03-28T12:00Z", 3) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-29T03:20:00+02:00",
        "2026-03-29T03:40:00+02:00",
    ]


def test_a_pace_is_kept_through_a_repeated_hour_and_over_a_gap() -> None:
    assert slots("0 30 * * * *", BERLIN, "2026-10-25T00:00Z", 3) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-25T03:30:00+01:00",
    ]
    assert slots("0 30 * * * *", BERLIN, "2026-03-29T00:00Z", 2) == [
        "2026-03-29T01:30:00+01:00",
        "2026-03-29T03:30:00+02:00",
    ]


def test_a_pace_finds_the_first_of_two_hours_from_within_the_second_a_year_before() -> None:
    assert slots("0 30 * 7 11 *", HAVANA, "2026-11-01T05:10Z", 2)[0] == "2026-11-07T00:30:00-05:00"
    second_hour_of_2027 = "2027-11-07T05:00Z"
    assert slots("0 30 * 1 11 *", HAVANA, second_hour_of_2027, 1) == ["2028-11-01T00:30:00-04:00"]
    assert slots("0 30 * 7 11 *", HAVANA, "2026-11-08T05:00Z", 2) == [
        "2027-11-07T00:30:00-04:00",
        "2027-11-07T00:30:00-05:00",
    ]


def test_a_day_that_was_left_out() -> None:
    """Samoa went over the date line on 30 December 2011, which did not come there."""
    assert slots("0 0 7 * * *", APIA, "2011-12-29T00:00Z", 3) == [
        "2011-12-29T07:00:00-10:00",
        "2011-12-31T00:00:00+14:00",
        "2011-12-31T07:00:00+14:00",
    ]


def test_every_second_through_the_second_hour_costs_no_more_than_elsewhere() -> None:
    assert slots("* * 0-22 * * *", BERLIN, "2026-10-25T01:00:00Z", 1) == ["2026-10-25T03:00:00+01:00"]


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, told",
    [
        ("0 7 * * 1", "five fields; seconds come first here: `0 0 7 * * 1`"),
        ("@weekly", "is not supported; write six fields"),
        ("0 0 7 * * 1 2026", "7 fields; there are six: second, minute"),
        ("", "0 fields"),
        ("0 0 7 31 2 *", "such a day never comes"),
        ("0 0 7 31 2,4,6 *", "such a day never comes"),
        ("0 0 7 30,31 FEB *", "such a day never comes"),
        ("60 0 7 * * *", "the second 60 is not from 0 to 59"),
        ("0 60 7 * * *", "the minute 60 is not from 0 to 59"),
        ("0 0 24 * * *", "the hour 24 is not from 0 to 23"),
        ("0 0 7 0 * *", "the day of the month 0 is not from 1 to 31"),
        ("0 0 7 * 13 *", "the month 13 is not from 1 to 12"),
        ("0 0 7 * * 8", "the day of the week 8 is not from 0 to 7"),
        ("0 0 22-2 * * *", "the hour `22-2` ends before it begins"),
        ("0 0 7 * * FRI-MON", "the day of the week `FRI-MON` ends before it begins"),
        ("0 0 7 * * JAN", "the day of the week JAN is not from 0 to 7"),
        ("0 */0 7 * * *", "the step /0 of the minute"),
        ("0 0 7 L * *", "the day of the month `L` is not"),
        ("0 0 7 ? * 1", "the day of the month `?` is not"),
        ("0 0 7 * * 1#2", "the day of the week `1#2` is not"),
        ("0 0 7 15W * *", "the day of the month `15W` is not"),
        ("H 0 7 * * *", "the second `H` is not"),
        ("0 R 7 * * *", "the minute `R` is not"),
        ("0 -5 7 * * *", "the minute `-5` is not"),
        ("0 1,,2 7 * * *", "the minute `` is not"),
        ("0 ٣ 7 * * *", "the minute `٣` is not"),
        ("0 0 7 * * 1" + " " * 200, "at most 200"),
    ],
)
def test_a_line_is_refused_with_what_is_wrong(line: str, told: str) -> None:
    with pytest.raises(CronError) as refused:
        Cron.parse(line)
    assert told in str(refused.value)


def test_a_day_that_never_comes_is_fine_beside_a_weekday_that_does() -> None:
    assert slots("0 0 7 31 2 MON", BERLIN, "2026-02-01T00:00Z", 1) == ["2026-02-02T07:00:00+01:00"]
