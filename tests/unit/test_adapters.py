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
        ("generic", {}, ["event"]),
        ("generic", {"event": "e", "id": "1", "keys": {str(n): n for n in range(101)}}, ["keys"]),
        ("github", {"action": "opened"}, ["x-github-event"]),
        ("salesforce", {}, ["event"]),
        ("salesforce", {"payload": {"ChangeEventHeader": {}}}, ["ChangeEventHeader.entityName"]),
        ("salesforce", {"payload": {}, "event": {"replayId": 1}}, ["event.EventApiName"]),
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
        normalise("sap", {}, {})
    assert adapter.value.code == "inbound.adapter"

    with pytest.raises(Rejected) as overflow:
        normalise("salesforce", captured(changeType="GAP_OVERFLOW"), {})
    assert overflow.value.code == "inbound.event"


@pytest.mark.parametrize("body", [None, [], "x", 1])
def test_a_body_is_an_object(body: Any) -> None:
    with pytest.raises(Malformed):
        normalise("generic", body, {})


def test_generic() -> None:
    body: dict[str, Any] = {"event": "deployed", "external_id": "d-1", "id": "ignored", "keys": {"env": "next"}, "x": 1}
    event = normalise("generic", body, {})
    assert (event.event, event.external_id, event.keys, event.payload) == ("deployed", "d-1", {"env": "next"}, body)
    assert normalise("generic", {"event": "e", "id": 7}, {}).external_id == "7"
    assert normalise("generic", {"event": "e", "id": 7, "payload": {"x": 1}}, {}).payload == {"x": 1}


@pytest.mark.parametrize("adapter", ["generic", "github", "salesforce"])
def test_a_body_without_an_id_is_its_own_identity(adapter: str) -> None:
    headers = {"x-github-event": "push"}
    bodies: list[Any] = [{"event": "e", "a": 1, "b": 2}, {"b": 2, "a": 1, "event": "e"}, {"event": "e", "a": 1, "b": 3}]
    first, again, other = (normalise(adapter, body, headers).external_id for body in bodies)
    assert first == again != other
    assert first.startswith("sha256:")


def captured(**header: Any) -> dict[str, Any]:
    """A change as Change Data Capture tells it."""
    change = {
        "entityName": "Opportunity",
        "recordIds": ["0065g00000ABC"],
        "changeType": "UPDATE",
        "changedFields": ["StageName"],
        "transactionKey": "0002343d-9d90",
        "sequenceNumber": 1,
        "commitUser": "0055g00000XYZ",
    }
    payload = {"ChangeEventHeader": {**change, **header}, "StageName": "Closed Won", "Amount": 1200.5, "Address": {}}
    return {"schema": "IeRuaY6", "payload": payload, "event": {"replayId": 6}}


def test_a_change_of_a_salesforce_record() -> None:
    event = normalise("salesforce", captured(), {})
    assert (event.event, event.external_id) == ("record_updated", "Opportunity:0002343d-9d90:1")
    assert event.keys == {
        "object": "Opportunity",
        "record_id": "0065g00000ABC",
        "record_ids": ["0065g00000ABC"],
        "changed": ["StageName"],
        "actor": "0055g00000XYZ",
        "StageName": "Closed Won",
        "Amount": 1200.5,
    }
    assert (
        normalise("salesforce", {"channel": "/data/OpportunityChangeEvent", "data": captured()}, {}).keys == event.keys
    )
    several = normalise("salesforce", captured(recordIds=["1", "2"], changeType="GAP_DELETE"), {})
    assert (several.event, several.keys["gap"], "record_id" in several.keys) == ("record_deleted", True, False)


def test_changes_of_one_salesforce_transaction_are_several_events() -> None:
    bodies = [captured(), captured(sequenceNumber=2), captured(entityName="Account"), captured(transactionKey="other")]
    ids = [normalise("salesforce", body, {}).external_id for body in bodies]
    assert len(set(ids)) == len(bodies)
    redelivered = captured()
    redelivered["event"]["replayId"] = 99
    assert normalise("salesforce", redelivered, {}).external_id == ids[0]


def test_a_platform_event_of_salesforce() -> None:
    payload = {"CreatedDate": "2026-11-29T10:00:00Z", "Order__c": "A-1", "Nested__c": {}}
    body: dict[str, Any] = {"payload": payload, "event": {"EventUuid": "e6b2", "EventApiName": "Order_Placed__e"}}
    event = normalise("salesforce", body, {})
    assert (event.event, event.external_id, event.keys["Order__c"]) == ("Order_Placed__e", "e6b2", "A-1")
    relayed: dict[str, Any] = {
        "channel": "/event/Order_Placed__e",
        "data": {"payload": payload, "event": {"replayId": 7}},
    }
    event = normalise("salesforce", relayed, {})
    assert (event.event, event.external_id) == ("Order_Placed__e", "Order_Placed__e:7:2026-11-29T10:00:00Z")


def test_a_notification_of_a_push_topic() -> None:
    told = {"type": "created", "replayId": 12, "createdDate": "2026-11-29T10:00:00Z"}
    body: dict[str, Any] = {"event": told, "sobject": {"Id": "500A", "attributes": {"type": "Case"}, "Status": "New"}}
    event = normalise("salesforce", body, {})
    assert (event.event, event.external_id) == ("record_created", "Case:500A:created:12:2026-11-29T10:00:00Z")
    assert event.keys == {"Id": "500A", "Status": "New", "object": "Case", "record_id": "500A"}


def test_what_a_flow_composes_is_read_as_generic() -> None:
    event = normalise("salesforce", {"event": "deal_won", "external_id": "006:1", "keys": {"deal": "006"}}, {})
    assert (event.event, event.external_id, event.keys) == ("deal_won", "006:1", {"deal": "006"})


PULL: dict[str, Any] = {
    "action": "closed",
    "pull_request": {
        "number": 12,
        "title": "Move a booking",
        "html_url": "https://github.com/acme/ferry/pull/12",
        "state": "closed",
        "merged": True,
        "labels": [{"name": "summer"}],
        "user": {"login": "lena"},
        "head": {"ref": "workflow/1", "sha": "abc"},
        "base": {"ref": "next"},
    },
    "repository": {"full_name": "acme/ferry"},
    "sender": {"login": "omar"},
}


def test_a_pull_request_of_github() -> None:
    event = normalise("github", PULL, {"X-GitHub-Event": "pull_request", "X-GitHub-Delivery": "1"})
    assert event.event == "pull_request.closed"
    assert event.keys == {
        "repository": "acme/ferry",
        "sender": "omar",
        "number": 12,
        "title": "Move a booking",
        "url": "https://github.com/acme/ferry/pull/12",
        "state": "closed",
        "labels": ["summer"],
        "author": "lena",
        "branch": "workflow/1",
        "base": "next",
        "sha": "abc",
        "merged": True,
    }


def test_a_github_body_that_is_replayed_under_other_headers_is_the_same_event() -> None:
    headers = [{"x-github-event": "pull_request", "x-github-delivery": "1"}, {"x-github-event": "push"}]
    assert len({normalise("github", copy.deepcopy(PULL), each).external_id for each in headers}) == 1


def test_two_github_comments_in_one_second_are_two_events() -> None:
    said: dict[str, Any] = {"action": "created", "issue": {"number": 7}, "repository": {"full_name": "acme/ferry"}}
    bodies = [
        {**said, "comment": {"id": number, "body": "+1", "created_at": "2026-11-29T10:00:00Z"}} for number in (1, 2)
    ]
    events = [normalise("github", body, {"x-github-event": "issue_comment"}) for body in bodies]
    assert len({event.external_id for event in events}) == 2
    assert [event.keys["comment_id"] for event in events] == ["1", "2"]
    assert {event.event for event in events} == {"issue_comment.created"}


@pytest.mark.parametrize(
    ("name", "body", "keys"),
    [
        ("push", {"ref": "refs/heads/main", "after": "abc"}, {"branch": "main", "sha": "abc"}),
        ("push", {"ref": "refs/tags/v1", "after": "abc"}, {"tag": "v1", "sha": "abc"}),
        ("release", {"action": "published", "release": {"tag_name": "v2"}}, {"tag": "v2"}),
        (
            "workflow_run",
            {"workflow_run": {"name": "CI", "conclusion": "success", "head_branch": "next", "head_sha": "a"}},
            {"workflow": "CI", "conclusion": "success", "branch": "next", "sha": "a"},
        ),
        (
            "pull_request_review",
            {"review": {"state": "approved", "body": "Fine"}},
            {"review": "approved", "comment": "Fine"},
        ),
    ],
)
def test_other_events_of_github(name: str, body: dict[str, Any], keys: dict[str, Any]) -> None:
    assert normalise("github", body, {"x-github-event": name}).keys == keys


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
