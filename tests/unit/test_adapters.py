"""Bodies of webhooks → events: names, keys, and ids that tell deliveries of one event from two events."""

import copy
import hashlib
import hmac
from typing import Any

import pytest

from contracts.errors import Malformed, Rejected
from libs.adapters import normalise, verify_signature

ISSUE: dict[str, Any] = {
    "id": "20418",
    "key": "FERRY-142",
    "fields": {
        "summary": "Move a booking",
        "description": "As a passenger",
        "issuetype": {"name": "Story"},
        "project": {"key": "FERRY"},
        "status": {"name": "Ready"},
        "priority": {"name": "High"},
        "labels": ["summer"],
    },
}
TRANSITION: dict[str, Any] = {
    "timestamp": 1795510802417,
    "webhookEvent": "jira:issue_updated",
    "user": {"displayName": "Priya Raman", "emailAddress": "priya@example.com"},
    "issue": ISSUE,
    "changelog": {
        "id": "88213",
        "items": [
            {"field": "assignee", "fieldId": "assignee", "fromString": None, "toString": "Lena"},
            {"field": "status", "fieldId": "status", "fromString": "Refinement", "toString": "Ready"},
        ],
    },
}


def comment(id_: str, **changes: Any) -> dict[str, Any]:
    said = {"id": id_, "body": "Fine by me", "author": {"displayName": "Lena"}}
    return {"timestamp": 1795510802417, "webhookEvent": "comment_created", "issue": ISSUE, "comment": said, **changes}


def test_a_transition() -> None:
    event = normalise("jira", TRANSITION, {})
    assert event.event == "issue_transitioned"
    assert event.external_id == "issue_transitioned:FERRY-142:20418:88213:1795510802417"
    assert event.payload is TRANSITION
    assert event.keys == {
        "jira_key": "FERRY-142",
        "project": "FERRY",
        "issue_type": "Story",
        "summary": "Move a booking",
        "description": "As a passenger",
        "status": "Ready",
        "priority": "High",
        "labels": ["summer"],
        "actor": "priya@example.com",
        "from": "Refinement",
        "to": "Ready",
    }


@pytest.mark.parametrize(
    "body, event",
    [
        ({**TRANSITION, "webhookEvent": "jira:issue_created"}, "issue_created"),
        ({**TRANSITION, "changelog": {"id": "1", "items": [{"field": "summary"}]}}, "issue_updated"),
        ({key: value for key, value in TRANSITION.items() if key != "changelog"}, "issue_updated"),
        ({**TRANSITION, "webhookEvent": "jira:issue_deleted"}, "issue_deleted"),
        (comment("7"), "comment_created"),
        (comment("7", webhookEvent="comment_updated"), "comment_updated"),
        (comment("7", webhookEvent="comment_deleted"), "comment_deleted"),
    ],
)
def test_events_of_jira(body: dict[str, Any], event: str) -> None:
    assert normalise("jira", body, {}).event == event


def test_a_comment() -> None:
    keys = normalise("jira", comment("7"), {}).keys
    assert (keys["comment_id"], keys["comment"], keys["actor"]) == ("7", "Fine by me", "Lena")


def test_jiras_own_identifier_counts_where_the_body_has_no_timestamp() -> None:
    body = {key: value for key, value in TRANSITION.items() if key != "timestamp"}
    for name in ("x-atlassian-webhook-identifier", "X-Atlassian-Webhook-Identifier"):
        assert normalise("jira", body, {name: " 6f9c "}).external_id == "6f9c"
    assert normalise("jira", body, {"x-atlassian-webhook-identifier": " "}).external_id.startswith("sha256:")
    long = normalise("jira", body, {"x-atlassian-webhook-identifier": "x" * 500}).external_id
    assert long.startswith("sha256:")
    assert len(long) < 200


def test_a_replayed_body_with_another_header_is_the_same_event() -> None:
    """The signature covers the body alone, so what it does not cover must not make a new event."""
    ids = {normalise("jira", TRANSITION, {"x-atlassian-webhook-identifier": name}).external_id for name in "ab"}
    assert len(ids) == 1


def test_a_redelivery_has_the_same_id() -> None:
    assert normalise("jira", copy.deepcopy(TRANSITION), {"x-retry": "1"}).external_id == (
        normalise("jira", TRANSITION, {}).external_id
    )


def test_two_events_in_one_second_have_two_ids() -> None:
    bodies = [
        comment("7"),
        comment("8"),
        comment("7", webhookEvent="comment_updated"),
        TRANSITION,
        {**TRANSITION, "changelog": {**TRANSITION["changelog"], "id": "88214"}},
        {**TRANSITION, "issue": {**ISSUE, "id": "20419"}},
    ]
    assert len({normalise("jira", body, {}).external_id for body in bodies}) == len(bodies)


def test_a_body_without_a_timestamp_is_its_own_identity() -> None:
    first, second = comment("7"), comment("7", comment={"id": "7", "body": "Edited"})
    del first["timestamp"], second["timestamp"]
    ids = [normalise("jira", body, {}).external_id for body in (first, copy.deepcopy(first), second)]
    assert ids[0] == ids[1] != ids[2]
    assert ids[0].startswith("sha256:")


def test_a_document_of_atlassians_format_becomes_text() -> None:
    body = copy.deepcopy(TRANSITION)
    body["issue"]["fields"]["description"] = {
        "type": "doc",
        "version": 1,
        "content": [
            {
                "type": "paragraph",
                "content": [{"type": "text", "text": "As a "}, {"type": "text", "text": "passenger"}],
            },
            {
                "type": "bulletList",
                "content": [
                    {
                        "type": "listItem",
                        "content": [{"type": "paragraph", "content": [{"type": "text", "text": "a"}]}],
                    },
                    {
                        "type": "listItem",
                        "content": [{"type": "paragraph", "content": [{"type": "text", "text": "b"}]}],
                    },
                ],
            },
        ],
    }
    assert normalise("jira", body, {}).keys["description"] == "As a passenger\na\nb"


def test_what_jira_leaves_out_is_left_out() -> None:
    keys = normalise("jira", {"webhookEvent": "jira:issue_created", "issue": {"key": "ABC-1"}}, {}).keys
    assert keys == {"jira_key": "ABC-1", "project": "ABC"}


@pytest.mark.parametrize(
    "adapter, body, paths",
    [
        ("jira", {}, ["webhookEvent", "issue.key"]),
        ("jira", {"webhookEvent": "jira:issue_updated", "issue": "FERRY-1"}, ["issue.key"]),
        ("jira", {"webhookEvent": "comment_created", "issue": ISSUE}, ["comment.id"]),
        ("jira", {"webhookEvent": " ", "issue": {"key": None}}, ["webhookEvent", "issue.key"]),
        ("generic", {}, ["event", "external_id"]),
        ("generic", {"event": "x" * 101, "id": "1"}, ["event"]),
        ("generic", {"event": "e", "id": True}, ["external_id"]),
        ("generic", {"event": "e", "id": "1", "keys": []}, ["keys"]),
    ],
)
def test_what_is_missing_is_named(adapter: str, body: dict[str, Any], paths: list[str]) -> None:
    with pytest.raises(Rejected) as caught:
        normalise(adapter, body, {})
    assert (caught.value.code, caught.value.status) == ("inbound.incomplete", 422)
    assert [item.path for item in caught.value.errors] == paths


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(Rejected) as event:
        normalise("jira", {"webhookEvent": "sprint_started", "issue": ISSUE}, {})
    assert (event.value.code, event.value.status) == ("inbound.event", 422)
    with pytest.raises(Rejected) as adapter:
        normalise("salesforce", {}, {})
    assert adapter.value.code == "inbound.adapter"


@pytest.mark.parametrize("body", [None, [], "x", 1])
def test_a_body_is_an_object(body: Any) -> None:
    with pytest.raises(Malformed):
        normalise("generic", body, {})


def test_generic() -> None:
    body: dict[str, Any] = {"event": "deployed", "external_id": "d-1", "id": "ignored", "keys": {"env": "next"}, "x": 1}
    event = normalise("generic", body, {})
    assert (event.event, event.external_id, event.keys, event.payload) == ("deployed", "d-1", {"env": "next"}, body)
    assert normalise("generic", {"event": "e", "id": 7}, {}).external_id == "7"


def test_signatures() -> None:
    raw, secret = b'{"a": 1}', b"s3cret"
    digest = hmac.new(secret, raw, hashlib.sha256).hexdigest()
    assert verify_signature(raw, f"sha256={digest}", secret)
    assert verify_signature(raw, f" sha256={digest.upper()} ", secret)
    for header in (
        None,
        "",
        digest,
        f"sha1={digest}",
        "sha256=",
        f"sha256={digest[:-1]}",
        f"sha256={digest}0",
        "sha256=é",
    ):
        assert not verify_signature(raw, header, secret)
    assert not verify_signature(raw + b" ", f"sha256={digest}", secret)
    assert not verify_signature(raw, f"sha256={digest}", b"other")
    empty = hmac.new(b"", raw, hashlib.sha256).hexdigest()
    assert not verify_signature(raw, f"sha256={empty}", b""), "an empty secret is a missing one"
