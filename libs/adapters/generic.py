"""Events of systems without an adapter of their own: `{"event", "external_id", "keys": {...}, "payload": {...}}`.

`id` may stand for `external_id`. Without either the digest of the body is the id: right for a sender that repeats a
delivery byte for byte, and for no other.
"""

from collections.abc import Mapping
from typing import Final

from contracts.base import JsonObject
from libs.adapters.normalised import EVENT_CHARS_MAX, Normalised, bounded, identity, incomplete, text

KEYS_MAX: Final = 100


def normalise(body: JsonObject, headers: Mapping[str, str]) -> Normalised:
    """Read a body whose sender names the event. `keys` and `payload` may be absent; the payload then is the body."""
    event = text(body.get("event"))
    external_id = text(body.get("external_id")) or text(body.get("id"))
    keys, payload = body.get("keys"), body.get("payload")
    missing: dict[str, str] = {}
    if event is None or len(event) > EVENT_CHARS_MAX:
        missing["event"] = f"must be the event's name, text of at most {EVENT_CHARS_MAX} characters"
    if external_id is None and any(body.get(name) is not None for name in ("external_id", "id")):
        missing["external_id"] = "must be text or a whole number that is the same for every delivery of this event"
    if keys is not None and (not isinstance(keys, dict) or len(keys) > KEYS_MAX):
        missing["keys"] = f"must be an object of at most {KEYS_MAX} entries"
    if event is None or missing:
        raise incomplete("generic", **missing)
    return Normalised(
        event,
        identity(body) if external_id is None else bounded(external_id),
        keys if isinstance(keys, dict) else {},
        payload if isinstance(payload, dict) else body,
    )
