"""The event store in one process, with the semantics of the real one and a clock by hand: for tests and simulation.

Nothing waits for anything here: each call happens at once and whole, as a statement does.
"""

from libs.eventstore.memory.eras import Dump
from libs.eventstore.memory.holding import Head
from libs.eventstore.memory.store import MemoryStore

__all__ = ["Dump", "Head", "MemoryStore"]
