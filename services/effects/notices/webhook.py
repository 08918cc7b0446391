"""Webhooks as Standard Webhooks has them (standardwebhooks.com): the same id at every try, signed with HMAC-SHA256."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from contracts.errors import Unavailable
from libs.canonical import canonical
from services.effects.notices.letters import Letter

_PREFIX: Final = "whsec_"


def body_of(letter: Letter) -> bytes:
    """The body: the same bytes at every try."""
    return canonical(
        {
            "type": letter.about,
            "timestamp": letter.raised_at,
            "data": {
                "notice_id": str(letter.notice_id),
                "title": letter.title,
                "text": letter.text,
                "link": letter.link,
                **letter.data,
            },
        }
    )


def headers_of(letter: Letter, body: bytes, *, secrets: Sequence[str], at_seconds: int) -> Mapping[str, str]:
    """The three headers, with a signature under each secret: while one is rotated a receiver may know either.

    `at_seconds` is the moment of this try since 1970, which receivers compare with their own clock.

    Raises:
        contracts.errors.Unavailable: a secret cannot be read.
    """
    signed = f"{letter.notice_id}.{at_seconds}.".encode() + body
    signatures = (hmac.new(_key(secret), signed, hashlib.sha256).digest() for secret in secrets)
    return {
        "webhook-id": str(letter.notice_id),
        "webhook-timestamp": str(at_seconds),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(signature).decode()}" for signature in signatures),
    }


def _key(secret: str) -> bytes:
    """The key of a secret: what follows `whsec_` is base64, any other secret is taken as its text is."""
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        message = f"the secret that signs is no base64 after `{_PREFIX}`; mend it, or leave the prefix out"
        raise Unavailable("secret.malformed", message) from error
