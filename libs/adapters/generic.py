"""Events of systems without an adapter of their own: `{"event", "external_id", "keys": {...}, ...}`."""

from collections.abc import Mapping

from contracts.base import JsonObject
from libs.adapters.normalised import EVENT_CHARS_MAX, Normalised, bounded, incomplete, text


def normalise(body: JsonObject, headers: Mapping[str, str]) -> Normalised:
    """Read a body whose sender names the event and its id. `id` may stand for `external_id`; `keys` may be absent."""
    event = text(body.get("event"))
    external_id = text(body.get("external_id")) or text(body.get("id"))
    keys = body.get("keys")
    missing: dict[str, str] = {}
    if event is None or len(event) > EVENT_CHARS_MAX:
        missing["event"] = f"must be the event's name, text of at most {EVENT_CHARS_MAX} characters"
    if external_id is None:
        missing["external_id"] = "must be an id that is the same for every delivery of this event"
    if keys is not None and not isinstance(keys, dict):
        missing["keys"] = "must be an object"
    if event is None or external_id is None or missing:
        raise incomplete("generic", **missing)
    return Normalised(event, bounded(external_id), keys if isinstance(keys, dict) else {}, body)
