"""How many deliveries of one source this api takes: a token bucket each, in memory, so a limit for each replica."""

from typing import Final

from contracts.errors import Rejected
from libs.clock import monotonic

FULL_AGAIN_SECONDS_MAX: Final = 3_600.0
"""Longest wait that a caller is told, however slow the rate."""


class Rates:
    """A bucket of `burst` deliveries a source, filled at `per_second`. Only declared sources have one."""

    def __init__(self, *, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, source_id: str) -> None:
        """Count one delivery of a source.

        Raises:
            contracts.errors.Rejected: 429 ``webhook.rate``; `extra` says in how many seconds one is taken again.
        """
        now = monotonic()
        left, at = self._buckets.get(source_id, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        if left < 1.0:
            self._buckets[source_id] = (left, now)
            wait = min((1.0 - left) / self._per_second, FULL_AGAIN_SECONDS_MAX)
            raise Rejected(
                "webhook.rate",
                f"source {source_id!r} delivers more than {self._per_second:g} events a second; deliver this one again",
                status=429,
                retry_after_seconds=max(1, round(wait)),
            )
        self._buckets[source_id] = (left - 1.0, now)
