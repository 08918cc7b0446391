"""Whether an inbound event is one that a trigger or a wait asks for."""

from contracts.base import JsonObject, JsonValue


def matches(match: JsonObject, event: str, keys: JsonObject) -> bool:
    """Whether every entry of `match` holds: `event` compares the event's name, any other key the event's `keys`.

    A list in `match` means any of its values. Text compares exactly; values of different types are never equal,
    and what the event does not carry equals nothing.
    """
    return all(_holds(wanted, event if key == "event" else keys.get(key)) for key, wanted in match.items())


def _holds(wanted: JsonValue, found: JsonValue) -> bool:
    alternatives = wanted if isinstance(wanted, list) else [wanted]
    return found is not None and any(_same(item, found) for item in alternatives)


def _same(left: JsonValue, right: JsonValue) -> bool:
    """Equality in which true is not 1."""
    return isinstance(left, bool) == isinstance(right, bool) and left == right
