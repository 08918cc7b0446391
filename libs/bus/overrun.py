"""Which durables lost messages to the limits of their stream.

JetStream drops the oldest messages of a stream by age and size, whether they were consumed or not, and tells nobody.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """How a durable and its stream stand. Numbers are sequences of the stream.

    `idle`: nothing waits for the durable and nothing of it is unsettled. `consumed`: somebody asks for messages.
    """

    first: int
    last: int
    settled_to: int
    idle: bool
    consumed: bool


class Overruns:
    """Compares readings of each durable: everything up to `safe` was settled, or was not of its subjects."""

    def __init__(self) -> None:
        self._safe: dict[str, int] = {}
        self._lost: set[str] = set()

    def take(self, durable: str, now: Reading) -> bool:
        """Take a reading; whether messages were lost that nobody was told of yet, and the durable is consumed again."""
        safe = max(self._safe.get(durable, now.last if now.idle else 0), now.settled_to)
        if safe > now.last:
            safe = now.last  # the stream was made anew: that is another loss, and its incarnation tells of it
        if now.first > safe + 1:
            self._lost.add(durable)
        self._safe[durable] = now.last if now.idle else max(safe, now.first - 1)
        if durable in self._lost and now.consumed:
            self._lost.discard(durable)
            return True
        return False
