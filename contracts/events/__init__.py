"""The facts, one module per stream category. Importing this package registers them all."""

from contracts.events import (
    admission,
    attempt,
    decision,
    definition,
    effect,
    identity,
    inbound,
    notice,
    run,
    schedule,
    wait,
)

CATEGORIES = (
    "admission",
    "attempt",
    "decision",
    "definition",
    "effect",
    "identity",
    "inbound",
    "notice",
    "run",
    "schedule",
    "wait",
)

__all__ = [
    "CATEGORIES",
    "admission",
    "attempt",
    "decision",
    "definition",
    "effect",
    "identity",
    "inbound",
    "notice",
    "run",
    "schedule",
    "wait",
]
