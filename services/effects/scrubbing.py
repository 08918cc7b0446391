"""What a target says is kept for ever. Where it repeats the credential that it was called with, that is taken out."""

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any

from libs.config import scrubbing
from libs.mcp import Outcome


def scrubbed(outcome: Outcome, secrets: Collection[str | None]) -> Outcome:
    """The outcome of a call without the secrets that the call was made with."""
    changed: dict[str, Any] = {
        each.name: scrubbing.scrubbed(getattr(outcome, each.name), secrets) for each in fields(outcome)
    }
    return replace(outcome, **changed)
