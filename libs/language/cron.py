"""Cron lines of six fields, seconds first: which moment is next in a time zone, over changes of its clock too.

A line names times of the local clock. Where the clock is changed, its hour field decides what is meant:

* A line of certain hours is an appointment. A time that happens twice counts the first time only; a time that does not
  happen is kept at the first moment after the gap.
* A line of every hour is a pace. It fires whenever the clock shows its time: twice where an hour is repeated, not at
  all for the times that are left out. So `0 * * * * *` is every minute, without a hole and without a double.

Vixie's cron and its heirs draw the same line. A slot is a moment, so two times of a line that fall on the same moment
after a gap are one slot.

The grammar is the part that all dialects read alike, and is read here: the libraries for it take more than is safe to
guess at (hashed and random fields, years, `1-1` as every day).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

CRON_CHARS_MAX: Final = 200
_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
_SHIFT_MAX: Final = _DAY
"""A clock is never changed by more than this at once: a day, in a zone that crosses the date line."""

_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_DAYS_OF_MONTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ITEM: Final = re.compile(
    r"(?:(?P<every>\*)|(?P<first>[0-9]{1,2}|[A-Z]{3})(?:-(?P<last>[0-9]{1,2}|[A-Z]{3}))?)(?:/(?P<step>[0-9]{1,2}))?"
)


class CronError(ValueError):
    """The text is not a cron line; the message says why, and how it is written."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A moment at which a line fires. `local` is its time on the zone's clock with offset, and names the slot."""

    local: str
    due_at: datetime


@dataclass(frozen=True, slots=True)
class _Field:
    """What stands in one place of a line. `names` are those of the values from `low` on."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def read(self, text: str) -> tuple[int, ...]:
        """The values that a field means, in order."""
        return tuple(sorted({value for item in text.split(",") for value in self._item(item)}))

    def _item(self, text: str) -> range:
        found = _ITEM.fullmatch(text)
        if not found:
            raise CronError(
                f"the {self.name} `{text[:20]}` is not `*`, a value, a range such as 1-5 or a step such as */10"
            )
        step = int(found["step"] or 1)
        if not 1 <= step <= self.high:
            raise CronError(f"the step /{step} of the {self.name} is not from 1 to {self.high}")
        if found["every"]:
            return range(self.low, self.high + 1, step)
        first = self._value(found["first"], at_end=False)
        if found["last"] is None or found["last"] == found["first"]:
            return range(first, (self.high if found["step"] else first) + 1, step)
        last = self._value(found["last"], at_end=True)
        if last < first:
            raise CronError(f"the {self.name} `{text}` ends before it begins; write it as two ranges")
        return range(first, last + 1, step)

    def _value(self, text: str, *, at_end: bool) -> int:
        if text.isdigit():
            value = int(text)
        elif text in self.names:
            value = self.low + (
                len(self.names) - 1 - self.names[::-1].index(text) if at_end else self.names.index(text)
            )
        else:
            value = self.high + 1
        if value > self.high or value < self.low:
            raise CronError(f"the {self.name} {text} is not from {self.low} to {self.high}")
        return value


_FIELDS: Final = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _WEEKDAYS),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """A line of six fields: second, minute, hour, day of the month, month, day of the week (0 and 7 are Sunday).

    A field is `*`, or a list of values, ranges and steps (`1-5`, `*/10`, `0/15`); months and weekdays have English
    names of three letters. Where both days are restricted, either of them will do.
    """

    text: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> "Cron":
        """Read a line.

        Raises:
            CronError: not six fields, a field out of its form or range, or days that never come, such as 31 February.
        """
        if len(text) > CRON_CHARS_MAX:
            raise CronError(f"a cron line of {len(text)} characters; at most {CRON_CHARS_MAX} are read")
        if text.strip().startswith("@"):
            raise CronError(f"`{text.strip()[:40]}` is not supported; write six fields, such as `0 0 7 * * 1`")
        given = text.upper().split()
        if len(given) == 5:
            raise CronError(f"five fields; seconds come first here: `0 {text.strip()}`")
        if len(given) != len(_FIELDS):
            names = ", ".join(field.name for field in _FIELDS)
            raise CronError(f"{len(given)} fields; there are six: {names}")
        seconds, minutes, hours, days, months, weekdays = (
            field.read(item) for field, item in zip(_FIELDS, given, strict=True)
        )
        cron = cls(" ".join(given), seconds, minutes, hours, days, months, frozenset(day % 7 for day in weekdays))
        if cron._is_every_weekday and min(days) > max(_DAYS_OF_MONTHS[month - 1] for month in months):
            raise CronError("such a day never comes in those months")
        return cron

    @property
    def is_pace(self) -> bool:
        """Whether it is a line of every hour, which follows the clock through its changes."""
        return len(self.hours) == 24

    def after(self, moment: datetime, zone: ZoneInfo) -> Slot:
        """The first slot later than a moment in UTC."""
        whole = moment.replace(microsecond=0)
        due_at = self._pace(whole, zone) if self.is_pace else self._appointment(whole, zone)
        return Slot(due_at.astimezone(zone).isoformat(timespec="seconds"), due_at)

    def next_slots(self, count: int, *, after: datetime, zone: ZoneInfo) -> tuple[Slot, ...]:
        """The next slots after a moment in UTC, in order."""
        return tuple(islice(self._slots(after, zone), count))

    def _slots(self, moment: datetime, zone: ZoneInfo) -> Iterator[Slot]:
        while True:
            slot = self.after(moment, zone)
            yield slot
            moment = slot.due_at

    def _appointment(self, moment: datetime, zone: ZoneInfo) -> datetime:
        """The first moment at which a wanted time comes for the first time, or would have come."""
        here = moment.astimezone(zone)
        local = _clock(here)
        if here.fold:  # what the clock shows now counted the first time: go on where it stood when it was put back
            back = _change(moment - _SHIFT_MAX, moment, zone)
            local = _clock((back - _SECOND).astimezone(zone)) if back else local
        local = self._following(local)
        due_at = local.replace(tzinfo=zone).astimezone(UTC)
        if _clock(due_at.astimezone(zone)) == local:
            return due_at
        return _change(due_at - _SHIFT_MAX, due_at, zone) or due_at

    def _pace(self, moment: datetime, zone: ZoneInfo) -> datetime:
        """The first moment at which the clock shows a wanted time, if need be after it was changed."""
        here = moment.astimezone(zone)
        local = _clock(here)
        while True:
            local = self._following(local)
            due_at = local.replace(tzinfo=zone, fold=here.fold).astimezone(UTC)
            if due_at - moment > _SHIFT_MAX:
                due_at = local.replace(tzinfo=zone).astimezone(UTC)
            change = _change(moment, min(due_at, moment + _SHIFT_MAX), zone)
            if change is not None:
                moment, here = change, change.astimezone(zone)
                local = _clock(here) - _SECOND
            elif _clock(due_at.astimezone(zone)) == local:
                return due_at

    def _following(self, local: datetime) -> datetime:
        """The next time of the line on a clock that is never changed."""
        begin = local + _SECOND
        day = begin.date()
        at = self._time_from(begin.hour, begin.minute, begin.second) if self._is_wanted(day) else None
        while at is None:
            day += _DAY
            at = self._time_from(0, 0, 0) if self._is_wanted(day) else None
        return datetime.combine(day, at)

    def _time_from(self, hour: int, minute: int, second: int) -> time | None:
        """The first time of a day that is not before another; None when that is on the next."""
        if hour in self.hours:
            if minute in self.minutes and (found := _from(second, self.seconds)) is not None:
                return time(hour, minute, found)
            if (found := _from(minute + 1, self.minutes)) is not None:
                return time(hour, found, self.seconds[0])
        found = _from(hour + 1, self.hours)
        return None if found is None else time(found, self.minutes[0], self.seconds[0])

    def _is_wanted(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        is_day, is_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        if self._is_every_weekday or len(self.days) == 31:
            return is_day and is_weekday
        return is_day or is_weekday

    @property
    def _is_every_weekday(self) -> bool:
        return len(self.weekdays) == 7


def _from(low: int, values: tuple[int, ...]) -> int | None:
    return next((value for value in values if value >= low), None)


def _clock(moment: datetime) -> datetime:
    """What the clock shows: the time without its zone."""
    return moment.replace(tzinfo=None, fold=0)


def _change(begin: datetime, end: datetime, zone: ZoneInfo) -> datetime | None:
    """The first second after `begin` at which the clock is another distance from UTC, None when it is not until `end`.

    A clock is changed at most once between the two, which are not further apart than a day.
    """

    def distance(moment: datetime) -> timedelta | None:
        return moment.astimezone(zone).utcoffset()

    before = distance(begin)
    if distance(end) == before:
        return None
    while end - begin > _SECOND:
        middle = begin + (end - begin) // _SECOND // 2 * _SECOND
        begin, end = (middle, end) if distance(middle) == before else (begin, middle)
    return end
