"""When a server may be called: its own limits of concurrency and rate, and a breaker for one that cannot be reached.

Each effects process counts for itself. What a gate holds back is not announced: it costs a place in a queue.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal
from uuid import UUID

from contracts.events.definition import ServerSynced
from libs.clock import monotonic

Server = tuple[UUID, str]
"""A tenant group, and the name under which it declared the server."""

HeldBy = Literal["calls", "breaker", "rate"]
"""What may hold a call back: as many calls as are allowed at a time, an open breaker, a rate that is used up."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server's declaration allows; `rate_calls` within `rate_seconds`."""

    concurrency: int | None = None
    rate_calls: int | None = None
    rate_seconds: float = 0.0
    breaker_failures: int = 5
    breaker_cooldown_seconds: float = 30.0

    @classmethod
    def of(cls, server: ServerSynced) -> "Limits":
        return cls(
            concurrency=server.concurrency,
            rate_calls=server.rate_calls,
            rate_seconds=server.rate_seconds or 0.0,
            breaker_failures=server.breaker_failures,
            breaker_cooldown_seconds=server.breaker_cooldown_seconds,
        )


UNLIMITED: Final = Limits()
"""Of a server that is not declared (any more): its effects fail without a call."""


class Gate:
    """One server's. `asking` are questions to it that are under way beside the calls of the ledger."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entered: deque[float] = deque()
        self._not_sent = 0
        self._shut_until: float | None = None
        self.limits = UNLIMITED
        self.asking = 0

    def held_by(self, busy: int, *, at_most: int) -> HeldBy | None:
        """What keeps one more call back beside `busy` ones. A breaker that half opens lets one try, alone."""
        busy += self.asking
        if self._shut_until is not None and (busy or self._clock() < self._shut_until):
            return "breaker"
        if busy >= min(at_most, self.limits.concurrency or at_most):
            return "calls"
        return "rate" if self._next_place() is not None else None

    def admits(self, busy: int, *, at_most: int) -> bool:
        """Whether one more call may be made beside `busy` ones."""
        return self.held_by(busy, at_most=at_most) is None

    def opens_at(self) -> float | None:
        """The moment from which time alone may let the next one in; None when time has nothing to do with it."""
        moments = [moment for moment in (self._shut_until, self._next_place()) if moment is not None]
        latest = max(moments, default=None)
        return None if latest is None or latest <= self._clock() else latest

    def enter(self) -> None:
        """A call is about to be made."""
        if self.limits.rate_calls is not None:
            self._entered.append(self._clock())

    def note(self, *, sent: bool) -> None:
        """What became of it: whether it reached the server. Enough in a row that did not, and the breaker opens."""
        if sent:
            self._not_sent, self._shut_until = 0, None
            return
        self._not_sent += 1
        if self._not_sent >= self.limits.breaker_failures:
            self._shut_until = self._clock() + self.limits.breaker_cooldown_seconds

    def _next_place(self) -> float | None:
        """When the rate allows another call; None when it does now."""
        allowed = self.limits.rate_calls
        if allowed is None or len(self._entered) < allowed:
            return None
        now = self._clock()
        while self._entered and self._entered[0] + self.limits.rate_seconds <= now:
            self._entered.popleft()
        return None if len(self._entered) < allowed else self._entered[-allowed] + self.limits.rate_seconds


class Gates:
    """The gates of all servers that were called from here."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._gates: dict[Server, Gate] = {}

    def of(self, server: Server, limits: Limits | None = None) -> Gate:
        """A server's gate; with `limits`, those that count from now on."""
        gate = self._gates.setdefault(server, Gate(self._clock))
        if limits is not None:
            gate.limits = limits
        return gate
