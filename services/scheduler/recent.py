"""What was sent a moment ago, so that a slow owner does not get the same again at every tick."""

from collections.abc import Callable, Hashable, Iterable
from datetime import timedelta
from typing import Final, Generic, TypeVar

from libs.clock import monotonic

RESEND_AFTER: Final = timedelta(seconds=10)

K = TypeVar("K", bound=Hashable)


class Recent(Generic[K]):
    """Remembers keys for a while."""

    def __init__(self, after: timedelta = RESEND_AFTER, clock: Callable[[], float] = monotonic) -> None:
        self._seconds = after.total_seconds()
        self._clock = clock
        self._sent: dict[K, float] = {}

    def fresh(self, keys: Iterable[K]) -> list[K]:
        """Those of the keys that were not sent lately."""
        now = self._clock()
        # In the order in which they were sent, so the old ones are in front.
        for key, sent_at in list(self._sent.items()):
            if now - sent_at < self._seconds:
                break
            del self._sent[key]
        return [key for key in keys if key not in self._sent]

    def sent(self, keys: Iterable[K]) -> None:
        """Remember keys that were sent just now."""
        now = self._clock()
        for key in keys:
            self._sent.pop(key, None)
            self._sent[key] = now
