"""Signatures of webhooks: HMAC-SHA256 of the raw body, `sha256=<hex>`."""

import hashlib
import hmac
import re
from typing import Final

_HEADER: Final = re.compile(r"sha256=([0-9a-fA-F]{64})", re.ASCII)


def verify_signature(raw: bytes, header: str | None, secret: bytes) -> bool:
    """Whether `header` signs these very bytes under `secret`. Compared in constant time; an empty secret signs nothing.

    `raw` is the body as it came over the wire: parsed and written again it would be another text.
    """
    signed = _HEADER.fullmatch(header.strip()) if header else None
    if signed is None or not secret:
        return False
    expected = hmac.new(secret, raw, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, signed[1].lower())
