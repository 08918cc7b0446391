"""What a target says is kept for ever. Where it repeats the credential that it was called with, that is taken out."""

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any, Final

from libs.mcp import Outcome

MASK: Final = "***"
SCRUBBED_CHARS_MIN: Final = 8
"""Shorter texts are not looked for: they would be found in what has nothing to do with them."""


def scrubbed(outcome: Outcome, secrets: Collection[str | None]) -> Outcome:
    """The outcome of a call without the secrets that the call was made with."""
    found = [secret for secret in secrets if secret is not None and len(secret) >= SCRUBBED_CHARS_MIN]
    changed: dict[str, Any] = {each.name: _without(getattr(outcome, each.name), found) for each in fields(outcome)}
    return replace(outcome, **changed)


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
