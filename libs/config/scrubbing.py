"""What others say is kept for ever. Where they repeat a secret that they were called with, it is taken out."""

from collections.abc import Collection
from typing import Any, Final

MASK: Final = "***"
SCRUBBED_CHARS_MIN: Final = 8
"""Shorter texts are not looked for: they would be found in what has nothing to do with them."""


def scrubbed(value: Any, secrets: Collection[str | None]) -> Any:
    """A JSON value of the same shape in which none of the secrets stands."""
    return _without(value, [secret for secret in secrets if secret is not None and len(secret) >= SCRUBBED_CHARS_MIN])


def _without(value: Any, secrets: Collection[str]) -> Any:
    match value:
        case str():
            for secret in secrets:
                value = value.replace(secret, MASK)
            return value
        case list():
            return [_without(item, secrets) for item in value]
        case dict():
            return {_without(key, secrets): _without(item, secrets) for key, item in value.items()}
        case _:
            return value
