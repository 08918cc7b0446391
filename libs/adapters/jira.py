"""Jira's webhooks: issues that are created, updated, moved to another status or deleted, and comments on them.

An issue's update that changes its status is an `issue_transitioned` with the names of both statuses in `from` and `to`.

The external id is, in this order:

1. event, issue, id of changelog or comment, and timestamp of the body, so that two comments in one second differ;
2. for a body without a timestamp Jira's own `x-atlassian-webhook-identifier`, the same on each redelivery;
3. for one without that either, the digest of the whole body.

The body comes first because the signature covers nothing else: whoever replays a captured delivery may choose its
headers, and must not get a second run for a new one.
"""

from collections.abc import Mapping
from typing import Final

from contracts.base import JsonObject, JsonValue
from contracts.errors import Rejected
from libs.adapters.normalised import Normalised, bounded, header, identity, incomplete, member, present, text

IDENTIFIER_HEADER: Final = "x-atlassian-webhook-identifier"

_EVENTS: Final[Mapping[str, str]] = {
    "jira:issue_created": "issue_created",
    "jira:issue_updated": "issue_updated",
    "jira:issue_deleted": "issue_deleted",
    "comment_created": "comment_created",
    "comment_updated": "comment_updated",
    "comment_deleted": "comment_deleted",
}
_BLOCKS: Final = frozenset({"paragraph", "heading", "listItem", "codeBlock", "blockquote", "hardBreak"})


def normalise(body: JsonObject, headers: Mapping[str, str]) -> Normalised:
    """Read a webhook body of Jira, Cloud or Data Center."""
    name, key = text(body.get("webhookEvent")), text(member(body, "issue", "key"))
    missing: dict[str, str] = {}
    if name is None:
        missing["webhookEvent"] = "must name Jira's event, such as jira:issue_updated"
    if key is None:
        missing["issue__key"] = "must be the key of the issue"
    if name is not None and name.startswith("comment_") and text(member(body, "comment", "id")) is None:
        missing["comment__id"] = "must be the id of the comment"
    if name is None or key is None or missing:
        raise incomplete("jira", **missing)
    if name not in _EVENTS:
        raise Rejected("inbound.event", f"the jira adapter does not read `{name[:80]}`; it reads {', '.join(_EVENTS)}")
    event, change = _EVENTS[name], _status_change(body)
    if event == "issue_updated" and change:
        event = "issue_transitioned"
    return Normalised(event, _external_id(event, body, headers), _keys(key, body, change), body)


def _external_id(event: str, body: JsonObject, headers: Mapping[str, str]) -> str:
    timestamp = text(body.get("timestamp"))
    if timestamp is None:
        identifier = header(headers, IDENTIFIER_HEADER)
        return bounded(identifier) if identifier else identity(body)
    part = text(member(body, "comment", "id")) or text(member(body, "changelog", "id")) or "-"
    key, number = text(member(body, "issue", "key")), text(member(body, "issue", "id")) or "-"
    return bounded(f"{event}:{key}:{number}:{part}:{timestamp}")


def _keys(key: str, body: JsonObject, change: dict[str, JsonValue]) -> JsonObject:
    """What triggers compare and runs get as context. What the body does not say is left out."""
    fields = member(body, "issue", "fields")
    keys: JsonObject = {
        "jira_key": key,
        "project": member(fields, "project", "key") or key.rpartition("-")[0] or None,
        "issue_type": member(fields, "issuetype", "name"),
        "summary": member(fields, "summary"),
        "description": _prose(member(fields, "description")),
        "status": member(fields, "status", "name"),
        "priority": member(fields, "priority", "name"),
        "labels": member(fields, "labels"),
        "actor": _person(member(body, "user") or member(body, "comment", "author")),
        "comment_id": text(member(body, "comment", "id")),
        "comment": _prose(member(body, "comment", "body")),
        **change,
    }
    return present(keys)


def _status_change(body: JsonObject) -> dict[str, JsonValue]:
    """`from` and `to` of a changed status; empty when the status did not change."""
    items = member(body, "changelog", "items")
    for item in items if isinstance(items, list) else []:
        if "status" in (member(item, "fieldId"), member(item, "field")):
            return {"from": member(item, "fromString"), "to": member(item, "toString")}
    return {}


def _person(user: JsonValue) -> str | None:
    """The best name that Jira gives: an address may be hidden by the person's privacy settings."""
    return next(
        (name for key in ("emailAddress", "displayName", "name", "accountId") if (name := text(member(user, key)))),
        None,
    )


def _prose(value: JsonValue) -> str | None:
    """Text as it is; a document of Atlassian's format as its plain text, one block per line."""
    if not isinstance(value, dict):
        return value if isinstance(value, str) else None
    lines: list[str] = [""]
    todo: list[JsonValue] = [value]
    while todo:
        node = todo.pop()
        if member(node, "type") in _BLOCKS and lines[-1]:
            lines.append("")
        lines[-1] += str(member(node, "text") or "")
        content = member(node, "content")
        todo.extend(reversed(content) if isinstance(content, list) else [])
    return "\n".join(line for line in lines if line)
