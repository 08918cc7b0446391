"""Output schemas on the provider's wire, which enforces less than JSON Schema can say; what it cannot is told in words.

The executor checks every answer against the whole schema, so nothing depends on the model's heeding it.
"""

import json
import re
from typing import Any, Final

import anthropic

from contracts.base import JsonObject

WHOLE_SCHEMA: Final = "Your answer must also satisfy this JSON Schema:"
"""Begins the paragraph of the system prompt that holds the whole schema in a fence."""

_BACKTICKS: Final = re.compile(r"`+")


def on_the_wire(schema: JsonObject) -> JsonObject:
    """The schema without what the provider cannot enforce, which it would refuse. Objects are closed there."""
    try:
        return anthropic.transform_schema(schema)
    except (AssertionError, AttributeError, TypeError, ValueError):
        return schema


def in_words(schema: JsonObject | None) -> str | None:
    """The paragraph that tells a model the whole schema; None when the provider enforces all of it."""
    if schema is None or not _says_less(on_the_wire(schema), schema):
        return None
    text = json.dumps(schema, indent=2, ensure_ascii=False)
    fence = "`" * max(3, 1 + max((len(found) for found in _BACKTICKS.findall(text)), default=0))
    return f"{WHOLE_SCHEMA}\n\n{fence}json\n{text}\n{fence}"


def _says_less(sent: Any, whole: Any) -> bool:
    """Whether something of `whole` is not in `sent`. What `sent` adds does not count."""
    if isinstance(whole, dict) and isinstance(sent, dict):
        return any(key not in sent or _says_less(sent[key], value) for key, value in whole.items())
    if isinstance(whole, list) and isinstance(sent, list):
        return len(sent) != len(whole) or any(map(_says_less, sent, whole))
    return bool(sent != whole)
