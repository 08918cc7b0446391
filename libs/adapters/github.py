"""GitHub's webhooks, sent as JSON: `pull_request.closed`, `issue_comment.created`, `push` and all others.

An event is named by GitHub's own name with the action behind it, where the body has one.

The external id is the digest of the body. GitHub's `x-github-delivery` is the same on a redelivery, but the signature
covers the body alone: whoever replays a captured delivery may choose its headers, and must not get a second run for a
new one. Bodies of two events differ by the ids, commits and times in them.
"""

from collections.abc import Mapping
from typing import Final

from contracts.base import JsonObject, JsonValue
from libs.adapters.normalised import EVENT_CHARS_MAX, Normalised, header, identity, incomplete, member, present, text

EVENT_HEADER: Final = "x-github-event"
_BRANCH: Final = "refs/heads/"
_TAG: Final = "refs/tags/"


def normalise(body: JsonObject, headers: Mapping[str, str]) -> Normalised:
    """Read a webhook body of GitHub."""
    name, action = header(headers, EVENT_HEADER), text(body.get("action"))
    if name is None:
        raise incomplete("github", **{EVENT_HEADER: "must be sent as a header: GitHub names the event there"})
    event = f"{name}.{action}" if action else name
    return Normalised(event[:EVENT_CHARS_MAX], identity(body), _keys(body), body)


def _keys(body: JsonObject) -> JsonObject:
    """What triggers compare and runs get as context. What the body does not say is left out."""
    pull, issue, run = body.get("pull_request"), body.get("issue"), body.get("workflow_run") or body.get("check_run")
    subject = pull or issue
    ref = text(body.get("ref")) or ""
    return present(
        {
            "repository": member(body, "repository", "full_name"),
            "sender": member(body, "sender", "login"),
            "number": member(subject, "number"),
            "title": member(subject, "title"),
            "body": member(subject, "body"),
            "url": member(subject, "html_url") or member(run, "html_url") or body.get("compare"),
            "state": member(subject, "state"),
            "labels": _names(member(subject, "labels")),
            "label": member(body, "label", "name"),
            "author": member(subject, "user", "login"),
            "branch": member(pull, "head", "ref") or member(run, "head_branch") or _after(ref, _BRANCH),
            "base": member(pull, "base", "ref"),
            "tag": member(body, "release", "tag_name") or _after(ref, _TAG),
            "sha": member(pull, "head", "sha") or member(run, "head_sha") or body.get("after"),
            "merged": member(pull, "merged"),
            "review": member(body, "review", "state"),
            "conclusion": member(run, "conclusion"),
            "workflow": member(run, "name"),
            "comment_id": text(member(body, "comment", "id")),
            "comment": member(body, "comment", "body") or member(body, "review", "body"),
        }
    )


def _names(labels: JsonValue) -> JsonValue:
    return [name for label in labels if (name := member(label, "name"))] if isinstance(labels, list) else None


def _after(ref: str, prefix: str) -> str | None:
    return ref.removeprefix(prefix) if ref.startswith(prefix) else None
