"""The facts, one module per stream category. Importing this package registers them all."""

from contracts.events import attempt, decision, definition, effect, identity, inbound, run

CATEGORIES = ("attempt", "decision", "definition", "effect", "identity", "inbound", "run")

__all__ = ["CATEGORIES", "attempt", "decision", "definition", "effect", "identity", "inbound", "run"]
