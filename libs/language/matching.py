"""Whether an inbound event is one that a trigger or a wait asks for, and by what the ones that ask for it are found."""

from collections.abc import Iterator

from contracts.base import JsonObject, JsonValue
from libs.canonical import blob


def matches(match: JsonObject, event: str, keys: JsonObject) -> bool:
    """Whether every entry of `match` holds: `event` compares the event's name, any other key the event's `keys`.

    A list in `match` means any of its values. Text compares exactly; values of different types are never equal,
    and what the event does not carry equals nothing.
    """
    return next(unmet(match, event, keys), None) is None


def unmet(match: JsonObject, event: str, keys: JsonObject) -> Iterator[str]:
    """The entries of `match` that do not hold, by name, in its order."""
    for key, wanted in match.items():
        if not _holds(wanted, event if key == "event" else keys.get(key)):
            yield key


def probe(match: JsonObject) -> str:
    """One entry that an event must have, as its digest; empty where no entry is plain text.

    Of several the longest value: a ticket's key says more than a status. The event's name counts only alone, since
    thousands wait for events of one name.
    """
    plain = {key: wanted for key, wanted in match.items() if isinstance(wanted, str)}
    if not plain:
        return ""
    key = max(sorted(plain), key=lambda key: (key != "event", len(plain[key])))
    return _digest(key, plain[key])


def probes(event: str, keys: JsonObject) -> frozenset[str]:
    """Every probe that a `match` which this event fits may have."""
    entries = {**keys, "event": event}
    return frozenset({"", *(_digest(key, value) for key, value in entries.items() if isinstance(value, str))})


def _digest(key: str, value: str) -> str:
    return blob([key, value])[0].digest


def _holds(wanted: JsonValue, found: JsonValue) -> bool:
    alternatives = wanted if isinstance(wanted, list) else [wanted]
    return found is not None and any(_same(item, found) for item in alternatives)


def _same(left: JsonValue, right: JsonValue) -> bool:
    """Equality in which true is not 1."""
    return isinstance(left, bool) == isinstance(right, bool) and left == right
