"""Salesforce's events as relays of its event bus and callouts of its flows send them.

- Change Data Capture (`ChangeEventHeader`): `record_created`, `record_updated`, `record_deleted`, `record_undeleted`;
  the external id is the object, the transaction and the place in it.
- A platform event: its API name, such as `Order_Placed__e`; its uuid, else its name, replay id and time.
- A PushTopic's notification (`sobject` beside `event`): `record_created` and so on; object, record, change, replay id
  and time.
- What a flow composes itself: as the generic adapter reads it.

Everything is read from the body: the signature covers nothing else. A body without what makes its id has its digest. It
may be the event, or hold it as `data`.
"""

from collections.abc import Mapping
from typing import Final

from contracts.base import JsonObject, JsonValue
from contracts.errors import Rejected
from libs.adapters import generic
from libs.adapters.normalised import Normalised, bounded, identity, incomplete, member, present, text

_CHANGES: Final[Mapping[str, str]] = {
    "create": "record_created",
    "created": "record_created",
    "update": "record_updated",
    "updated": "record_updated",
    "delete": "record_deleted",
    "deleted": "record_deleted",
    "undelete": "record_undeleted",
    "undeleted": "record_undeleted",
}
_GAP: Final = "gap_"
_HEADER: Final = "ChangeEventHeader"


def normalise(body: JsonObject, headers: Mapping[str, str]) -> Normalised:
    """Read a body of Salesforce."""
    data = body.get("data")
    event = data if isinstance(data, dict) else body
    payload = event.get("payload")
    fields = payload if isinstance(payload, dict) else event
    change = fields.get(_HEADER)
    if isinstance(change, dict):
        return _changed(change, fields, body)
    sobject = event.get("sobject")
    if isinstance(sobject, dict):
        return _pushed(sobject, event, body)
    if isinstance(payload, dict) and isinstance(event.get("event"), dict):
        return _published(payload, event, body)
    return generic.normalise(body, headers)


def _changed(change: JsonObject, fields: JsonObject, body: JsonObject) -> Normalised:
    """Change Data Capture. One event may tell of several records that changed alike."""
    entity, records = text(change.get("entityName")), change.get("recordIds")
    if entity is None:
        raise incomplete("salesforce", ChangeEventHeader__entityName="must be the API name of the object")
    kind = (text(change.get("changeType")) or "").lower()
    transaction, number = text(change.get("transactionKey")), text(change.get("sequenceNumber")) or "-"
    record_ids: list[JsonValue] = records if isinstance(records, list) else []
    keys = {
        **_plain(fields),
        "object": entity,
        "record_id": record_ids[0] if len(record_ids) == 1 else None,
        "record_ids": record_ids or None,
        "changed": change.get("changedFields"),
        "gap": kind.startswith(_GAP) or None,
        "actor": change.get("commitUser"),
    }
    external_id = bounded(f"{entity}:{transaction}:{number}") if transaction else identity(body)
    return Normalised(_change(kind.removeprefix(_GAP)), external_id, present(keys), body)


def _pushed(sobject: JsonObject, event: JsonObject, body: JsonObject) -> Normalised:
    """A PushTopic's notification, or a callout in its form."""
    kind = (text(member(event, "event", "type")) or "").lower()
    entity = text(member(sobject, "attributes", "type")) or text(event.get("object"))
    record_id = text(sobject.get("Id"))
    replay_id, at = text(member(event, "event", "replayId")), text(member(event, "event", "createdDate"))
    keys = {**_plain(sobject), "object": entity, "record_id": record_id}
    stable = record_id is not None and replay_id is not None
    external_id = bounded(f"{entity}:{record_id}:{kind}:{replay_id}:{at}") if stable else identity(body)
    return Normalised(_change(kind), external_id, present(keys), body)


def _published(payload: JsonObject, event: JsonObject, body: JsonObject) -> Normalised:
    """A platform event."""
    channel = text(body.get("channel")) or text(event.get("channel")) or ""
    name = text(member(event, "event", "EventApiName")) or channel.rpartition("/")[2] or None
    if name is None:
        raise incomplete("salesforce", event__EventApiName="must name the platform event, or `channel` must")
    uuid, replay_id = text(member(event, "event", "EventUuid")), text(member(event, "event", "replayId"))
    at = text(payload.get("CreatedDate"))
    external_id = uuid or (f"{name}:{replay_id}:{at}" if replay_id and at else identity(body))
    return Normalised(name, bounded(external_id), _plain(payload), body)


def _change(kind: str) -> str:
    if kind not in _CHANGES:
        raise Rejected(
            "inbound.event",
            f"the salesforce adapter does not read a change of type `{kind[:80]}`; it reads create, "
            "update, delete and undelete",
        )
    return _CHANGES[kind]


def _plain(fields: JsonObject) -> JsonObject:
    """The record's plain values under their own names."""
    return {name: value for name, value in fields.items() if isinstance(value, str | int | float | bool)}
