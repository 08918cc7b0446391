"""Messages in the form that incoming webhooks of chats take. No text of ours can mention anybody or hide a link."""

from collections.abc import Callable, Mapping
from typing import Final

from contracts.base import JsonObject, JsonValue
from libs.canonical import canonical
from minutebook.models.states import ChannelKind
from services.effects.notices.letters import Letter

HEADER_CHARS_MAX: Final = 150
"""Of a header block of Slack."""


def slack(letter: Letter) -> bytes:
    """Blocks of plain text, in which nothing is markup; `text` is what a notification shows."""
    blocks: list[JsonValue] = [
        {"type": "header", "text": _plain(_cut(letter.title))},
        {"type": "section", "text": _plain(letter.text)},
    ]
    if letter.link is not None:
        link = f"<{_escaped(letter.link)}|Open it>"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": link, "verbatim": True}})
    return canonical({"text": _escaped(letter.title), "blocks": blocks})


def teams(letter: Letter) -> bytes:
    """An adaptive card of text runs, in which nothing is Markdown."""
    card: JsonObject = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [_run(letter.title, weight="Bolder"), _run(letter.text)],
    }
    if letter.link is not None:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open it", "url": letter.link}]
    attachment: JsonObject = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return canonical({"type": "message", "attachments": [attachment]})


BODIES: Final[Mapping[ChannelKind, Callable[[Letter], bytes]]] = {"slack": slack, "teams": teams}


def _plain(text: str) -> JsonObject:
    return {"type": "plain_text", "text": text, "emoji": False}


def _run(text: str, **style: str) -> JsonObject:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **style}]}


def _escaped(text: str) -> str:
    """Text in which Slack finds no mention and no link of its own."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(text: str) -> str:
    return text if len(text) <= HEADER_CHARS_MAX else text[: HEADER_CHARS_MAX - 1] + "…"
