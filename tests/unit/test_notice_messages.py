"""What is sent of a notice, byte for byte, and which is sent next."""

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from contracts.errors import Unavailable
from services.effects.notices import chats, mail, webhook
from services.effects.notices.lanes import Lanes
from services.effects.notices.letters import Letter

SECRET = "whsec_" + base64.b64encode(b"shared with the receiver").decode()
LETTER = Letter(
    notice_id=UUID("0a3f7d52-8a55-4b11-8f4e-2c9a7e5d3f02"),
    about="decision.opened",
    title="To decide: <!channel> & <https://evil.example|Approve>",
    text="Step *review* of [core-dev](https://evil.example) waits for `product_owner`.",
    link="https://minutebook.example.com/decisions/1",
    raised_at="2026-11-29T08:00:00+00:00",
    data={"decision_id": "1", "role": "product_owner"},
)


def signed(*secrets: str) -> tuple[bytes, dict[str, str]]:
    body = webhook.body_of(LETTER)
    now = int(datetime.now(UTC).timestamp())
    return body, dict(webhook.headers_of(LETTER, body, secrets=secrets, at_seconds=now))


def test_a_webhook_is_verified_by_the_reference_implementation() -> None:
    body, headers = signed(SECRET)
    assert Webhook(SECRET).verify(body, headers) == json.loads(body)
    assert headers["webhook-id"] == str(LETTER.notice_id)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(body.replace(b"product_owner", b"anybody"), headers)
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_" + base64.b64encode(b"another one").decode()).verify(body, headers)


def test_two_secrets_sign_while_one_is_rotated() -> None:
    old = "whsec_" + base64.b64encode(b"the one before").decode()
    body, headers = signed(SECRET, old)
    for secret in (SECRET, old):
        Webhook(secret).verify(body, headers)


def test_a_secret_without_the_prefix_is_taken_as_it_is() -> None:
    text = "just a text"
    body, headers = signed(text)
    Webhook("whsec_" + base64.b64encode(text.encode()).decode()).verify(body, headers)


def test_a_secret_that_is_no_base64_is_said_and_not_shown() -> None:
    with pytest.raises(Unavailable) as refused:
        signed("whsec_not base64!")
    assert refused.value.code == "secret.malformed"
    assert "not base64!" not in refused.value.message


def test_the_body_is_the_same_at_every_try() -> None:
    assert webhook.body_of(LETTER) == webhook.body_of(replace(LETTER))


def test_nothing_in_a_slack_message_mentions_or_links_but_ours() -> None:
    message = json.loads(chats.slack(LETTER))
    header, section, link = message["blocks"]
    assert header["text"] == {"type": "plain_text", "text": LETTER.title, "emoji": False}
    assert section["text"] == {"type": "plain_text", "text": LETTER.text, "emoji": False}
    assert link["text"]["text"] == f"<{LETTER.link}|Open it>"
    assert message["text"] == "To decide: &lt;!channel&gt; &amp; &lt;https://evil.example|Approve&gt;"
    long = json.loads(chats.slack(replace(LETTER, title="x" * 200)))
    assert len(long["blocks"][0]["text"]["text"]) == chats.HEADER_CHARS_MAX


def test_nothing_in_a_teams_card_is_markdown() -> None:
    card = json.loads(chats.teams(LETTER))["attachments"][0]["content"]
    assert [(block["type"], block["inlines"][0]["type"]) for block in card["body"]] == [
        ("RichTextBlock", "TextRun")
    ] * 2
    assert [block["inlines"][0]["text"] for block in card["body"]] == [LETTER.title, LETTER.text]
    assert card["actions"] == [{"type": "Action.OpenUrl", "title": "Open it", "url": LETTER.link}]
    assert "actions" not in json.loads(chats.teams(replace(LETTER, link=None)))["attachments"][0]["content"]


@pytest.mark.parametrize("harm", ["title", "sender", "to"])
def test_a_line_end_in_a_header_is_refused(harm: str) -> None:
    letter = replace(LETTER, title="a\r\nBcc: thief@example.com") if harm == "title" else LETTER
    sender = "a@example.com\nBcc: thief@example.com" if harm == "sender" else "a@example.com"
    to = "b@example.com\r\nBcc: thief@example.com" if harm == "to" else "b@example.com"
    with pytest.raises(ValueError):
        mail.message_of(letter, sender=sender, to=[to])


def test_channels_take_turns_and_none_takes_more_than_its_share() -> None:
    group = uuid4()
    slow, quick = (group, "slow"), (group, "quick")
    lanes = Lanes(tries_max=4, tries_per_channel_max=2, waiting_max=6)
    many, few = [uuid4() for _ in range(5)], [uuid4() for _ in range(2)]
    for notice_id in (*many, many[0]):
        lanes.wait(slow, notice_id)
    for notice_id in few:
        lanes.wait(quick, notice_id)
    assert lanes.take({}) == [many[0], few[0], many[1]], "the sixth that waits is the last that may"
    assert lanes.take({slow: 2, quick: 1}) == []
    assert lanes.take({quick: 4}) == []
    assert lanes.take({slow: 1}) == [many[2]]
    assert lanes.give_up() == many[3:]
    assert lanes.take({}) == []
