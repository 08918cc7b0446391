"""Checks of single values: text, numbers, durations, money, keys, free JSON."""

import re
from datetime import timedelta
from decimal import Decimal
from typing import Final

from contracts.base import JsonValue
from libs.language import nodes
from libs.language.problems import hint
from libs.language.shapes import REFUSED, Check, Place, Refused, refuse

KEY: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
ID: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")
ROLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]{0,127}")
QUEUE: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
PATH: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*")
EMAIL: Final = re.compile(r"[^@\s]+@[^@\s.]+(?:\.[^@\s.]+)+")
DURATION: Final = re.compile(r"(?=[0-9])(?:([0-9]{1,4})h)?(?:([0-9]{1,4})m)?(?:([0-9]{1,6})s)?")
DURATION_MAX: Final = timedelta(days=30)
DOLLARS: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")
TEXT_CHARS_MAX: Final = 4_000


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


def pattern(wanted: re.Pattern[str], what: str) -> Check:
    """Text of a form."""

    def check(place: Place) -> str | Refused:
        value = text(place)
        if isinstance(value, str) and not wanted.fullmatch(value):
            place.refuse(f"`{value[:80]}` is not {what}: it must match {wanted.pattern}")
            return REFUSED
        return value

    return check


def one_of(choices: frozenset[str], *, later: frozenset[str] = frozenset()) -> Check:
    """One word of a closed set; `later` are words that this version does not understand yet."""

    def check(place: Place) -> str | Refused:
        value = text(place)
        if isinstance(value, Refused) or value in choices:
            return value
        known = f"use {' or '.join(sorted(choices))}"
        reason = f"is not supported yet; {known}" if value in later else f"is not known{hint(value, choices)}"
        place.refuse(f"`{value[:80]}` {reason}")
        return REFUSED

    return check


def boolean(place: Place) -> bool | Refused:
    if isinstance(place.node, nodes.Scalar) and isinstance(place.node.value, bool):
        return place.node.value
    return refuse(place, "true or false")


def integer(low: int, high: int) -> Check:
    """A whole number of a range, both ends included."""

    def check(place: Place) -> int | Refused:
        value = place.node.value if isinstance(place.node, nodes.Scalar) else None
        if not isinstance(value, int) or isinstance(value, bool):
            return refuse(place, "a whole number")
        if not low <= value <= high:
            place.refuse(f"must be from {low} to {high}")
            return REFUSED
        return value

    return check


def duration(place: Place) -> timedelta | Refused:
    """Hours, minutes and seconds: `2h`, `90s`, `1h30m`."""
    node = place.node
    if not isinstance(node, nodes.Scalar) or not isinstance(node.value, str) or node.defect:
        return refuse(place, "a duration such as 90s, 15m or 1h30m")
    found = DURATION.fullmatch(node.value)
    if not found:
        place.refuse(f"`{node.value[:40]}` is not a duration; write it as 90s, 15m or 1h30m")
        return REFUSED
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    value = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if not timedelta(0) < value <= DURATION_MAX:
        place.refuse(f"must be longer than nothing and at most {DURATION_MAX.days * 24}h")
        return REFUSED
    return value


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


def json_value(place: Place) -> JsonValue | Refused:
    """Any value. Numbers that would lose digits are refused: `1.10` may be a version that was meant as text."""
    sound = _sound(place)
    return nodes.plain(place.node) if sound else REFUSED


def json_object(place: Place) -> JsonValue | Refused:
    if not isinstance(place.node, nodes.Mapping):
        return refuse(place, "a mapping")
    return json_value(place)


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
