"""Checks of single values: text, numbers, durations, money, keys, free JSON."""

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from contracts.base import JsonValue
from libs.language import nodes
from libs.language.cron import Cron, CronError
from libs.language.problems import hint, nearest
from libs.language.shapes import REFUSED, Check, Place, Refused, check, refuse, whole

KEY: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
ID: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")
ROLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]{0,127}")
QUEUE: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
PATH: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*")
MATCH_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
EMAIL: Final = re.compile(r"[^@\s]+@[^@\s.]+(?:\.[^@\s.]+)+")
ADDRESS: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}")
"""Of e-mail, as it may stand in a header and in a command: no comments, no quoting, no line ends."""
DURATION: Final = re.compile(r"(?=[0-9])(?:([0-9]{1,4})h)?(?:([0-9]{1,4})m)?(?:([0-9]{1,6})s)?")
DURATION_MAX: Final = timedelta(days=30)
TOOL: Final = re.compile(r"[A-Z][A-Za-z]{0,63}(?:\([^()\n]{1,200}\))?|mcp:[a-z][a-z0-9-]{0,63}")
INSTANT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
ZONE: Final = re.compile(r"[A-Z][A-Za-z0-9_+-]{0,31}(?:/[A-Za-z0-9_+-]{1,31}){0,2}")
REPOSITORY: Final = re.compile(
    r"https://[A-Za-z0-9.-]+(?::[0-9]{1,5})?/[A-Za-z0-9._~/-]+|ssh://[A-Za-z0-9@.:/_~-]+|git@[A-Za-z0-9.-]+:[A-Za-z0-9._~/-]+"
)
DOLLARS: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")
TEXT_CHARS_MAX: Final = 4_000


@check({"type": "string", "pattern": r"\S", "maxLength": TEXT_CHARS_MAX})
def text(place: Place) -> str | Refused:
    """Text with something in it."""
    node = place.node
    if not isinstance(node, nodes.Scalar) or not isinstance(node.value, str) or node.defect:
        return refuse(place, "text")
    if not node.value.strip():
        place.refuse("must not be blank")
        return REFUSED
    if len(node.value) > TEXT_CHARS_MAX:
        place.refuse(f"{len(node.value)} characters; at most {TEXT_CHARS_MAX}")
        return REFUSED
    return node.value


def pattern(wanted: re.Pattern[str], what: str, *, but: frozenset[str] = frozenset(), why: str = "") -> Check:
    """Text of a form, and none of those in `but`, for the reason that `why` gives."""
    schema: dict[str, Any] = {"type": "string", "pattern": whole(wanted)}

    if but:
        schema["not"] = {"enum": sorted(but)}

    @check(schema)
    def judge(place: Place) -> str | Refused:
        value: str | Refused = text(place)
        if isinstance(value, str) and not wanted.fullmatch(value):
            place.refuse(f"`{value[:80]}` is not {what}: it must match {wanted.pattern}")
            return REFUSED
        if value in but:
            place.refuse(f"`{value}` {why}")
            return REFUSED
        return value

    return judge


def one_of(choices: frozenset[str], *, later: frozenset[str] = frozenset()) -> Check:
    """One word of a closed set; `later` are words that this version does not understand yet."""

    @check({"enum": [*sorted(choices)]})
    def judge(place: Place) -> str | Refused:
        value: str | Refused = text(place)
        if isinstance(value, Refused) or value in choices:
            return value
        known = f"use {' or '.join(sorted(choices))}"
        reason = f"is not supported yet; {known}" if value in later else f"is not known{hint(value, choices)}"
        place.refuse(f"`{value[:80]}` {reason}")
        return REFUSED

    return judge


@check({"type": "boolean"})
def boolean(place: Place) -> bool | Refused:
    if isinstance(place.node, nodes.Scalar) and isinstance(place.node.value, bool):
        return place.node.value
    return refuse(place, "true or false")


def integer(low: int, high: int) -> Check:
    """A whole number of a range, both ends included."""

    @check({"type": "integer", "minimum": low, "maximum": high})
    def judge(place: Place) -> int | Refused:
        value = place.node.value if isinstance(place.node, nodes.Scalar) else None
        if not isinstance(value, int) or isinstance(value, bool):
            return refuse(place, "a whole number")
        if not low <= value <= high:
            place.refuse(f"must be from {low} to {high}")
            return REFUSED
        return value

    return judge


@check({"type": "string", "pattern": whole(DURATION)})
def duration(place: Place) -> timedelta | Refused:
    """Hours, minutes and seconds, longer than nothing: `2h`, `90s`, `1h30m`."""
    value = _duration(place)
    if isinstance(value, timedelta) and not timedelta(0) < value <= DURATION_MAX:
        place.refuse(f"must be longer than nothing and at most {_shown(DURATION_MAX)}")
        return REFUSED
    return value


def _shown(value: timedelta) -> str:
    seconds = int(value.total_seconds())
    return f"{seconds // 3600}h" if seconds and seconds % 3600 == 0 else f"{seconds}s"


def _duration(place: Place) -> timedelta | Refused:
    node = place.node
    if not isinstance(node, nodes.Scalar) or not isinstance(node.value, str) or node.defect:
        return refuse(place, "a duration such as 90s, 15m or 1h30m")
    found = DURATION.fullmatch(node.value)
    if not found:
        place.refuse(f"`{node.value[:40]}` is not a duration; write it as 90s, 15m or 1h30m")
        return REFUSED
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


def duration_within(low: timedelta, high: timedelta) -> Check:
    """A duration of a range, both ends included. Nothing is written `0s`."""

    @check({"type": "string", "pattern": whole(DURATION)})
    def judge(place: Place) -> timedelta | Refused:
        value = _duration(place)
        if isinstance(value, timedelta) and not low <= value <= high:
            place.refuse(f"must be from {_shown(low)} to {_shown(high)}")
            return REFUSED
        return value

    return judge


@check({"type": "string"})
def cron_line(place: Place) -> str | Refused:
    """Six fields, seconds first, normalised."""
    value: str | Refused = text(place)
    if isinstance(value, Refused):
        return value
    try:
        return Cron.parse(value).text
    except CronError as error:
        place.refuse(f"not a cron line: {error}")
        return REFUSED


@check({"type": "string", "pattern": whole(ZONE)})
def timezone(place: Place) -> str | Refused:
    """The name of a zone in the IANA database."""
    value: str | Refused = text(place)
    if isinstance(value, Refused) or (ZONE.fullmatch(value) and _is_zone(value)):
        return value
    meant = nearest(value, available_timezones())
    more = f"did you mean `{meant}`?" if meant else "write it like Europe/Berlin or UTC"
    place.refuse(f"`{value[:80]}` is not a time zone; {more}")
    return REFUSED


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


@check({"type": ["number", "string"], "exclusiveMinimum": 0, "pattern": whole(DOLLARS)})
def microdollars(place: Place) -> int | Refused:
    """US dollars with at most six decimals, as integer millionths. Read from the text, so nothing is rounded."""
    node = place.node
    if not isinstance(node, nodes.Scalar) or node.defect or isinstance(node.value, bool) or node.value is None:
        return refuse(place, "an amount in US dollars")
    if not DOLLARS.fullmatch(node.text):
        place.refuse(f"`{node.text[:40]}` is not an amount in US dollars with at most six decimals, such as 1.50")
        return REFUSED
    amount = int(Decimal(node.text) * 1_000_000)
    if amount == 0:
        place.refuse("a budget of nothing runs nothing; remove it or raise it")
        return REFUSED
    return amount


@check({})
def json_value(place: Place) -> JsonValue | Refused:
    """Any value. Numbers that would lose digits are refused: `1.10` may be a version that was meant as text."""
    sound = _sound(place)
    return nodes.plain(place.node) if sound else REFUSED


@check({"type": "object"})
def json_object(place: Place) -> JsonValue | Refused:
    if not isinstance(place.node, nodes.Mapping):
        return refuse(place, "a mapping")
    value: JsonValue | Refused = json_value(place)
    return value


def _sound(place: Place) -> bool:
    """Whether everything below is kept as it was written; every exception is noted, not only the first."""
    node = place.node
    match node:
        case nodes.Scalar():
            if node.is_rewritten:
                shown = node.text[:40]
                place.refuse(f'`{shown}` would be kept as the number {node.value}; if it is text, quote it: "{shown}"')
            return node.defect is None and not node.is_rewritten
        case nodes.Sequence():
            children = [place.child(nodes.label(item, i), item, item.line) for i, item in enumerate(node.items)]
        case nodes.Mapping():
            children = [place.child(key, item, node.lines[key]) for key, item in node.entries.items()]
    verdicts = [_sound(child) for child in children]
    return all(verdicts)
