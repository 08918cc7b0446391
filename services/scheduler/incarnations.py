"""Watches what the bus is made of, and wakes everything open when it lost what it held.

A bus that comes back empty has forgotten messages that were acknowledged to their senders, so no outbox row remembers
them. Whatever they said stands in the history: a stream that is woken reads the heads that it waits for and goes on.
Which streams are woken, and which need no wake: docs/adr/0007-a-lost-bus-wakes-what-is-open.md.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from contracts.errors import Unavailable
from contracts.subjects import DURABLES
from libs.bus.port import Bus
from libs.domain import lifecycle
from libs.eventstore.port import Clockwork
from libs.process.messages import Failures
from libs.telemetry.logs import get_logger
from services.scheduler.wakes import wake_message

LOOK_EVERY: Final = timedelta(seconds=2)

WOKEN_PER_LOOK_MAX: Final = 1_000
"""The pace: five hundred streams a second, which their owners carry beside their work."""

PAGE: Final = 500
PAGES_PER_LOOK_MAX: Final = 100

_UNFOUND: Final = "HISTORY"
"""The stream whose messages nothing else repeats. Idle runners look for work, the clock sends wakes again, and
deliveries are swept."""


def _open(edges: lifecycle.Edges) -> frozenset[str]:
    return frozenset(edges) - lifecycle.terminal(edges) - {"absent"}


OPEN: Final[Mapping[str, frozenset[str]]] = {
    "run": lifecycle.RUN_OPEN,
    "effect": _open(lifecycle.EFFECT),
    "decision": _open(lifecycle.DECISION),
    "wait": _open(lifecycle.WAIT),
    "attempt": _open(lifecycle.ATTEMPT),
    "notice": frozenset({"due", "sending"}),
}
"""What is woken, in this order."""

LOOKED_AT: Final[Mapping[str, frozenset[str]]] = {
    "admission": frozenset({"busy"}),
    "run": frozenset({"created", "running", "suspended"}),
}
"""What is looked at here and now, after that. A key's wake could be taken by a message of a run that asks for it, which
says nothing of those that have ended; and a run may wait for its key without anybody knowing that it asked."""

TOLD_OF: Final[Mapping[str, frozenset[str]]] = {
    "decision": frozenset({"open"}),
    "run": frozenset({"suspended", "failed"}),
}
"""What the effects service is told of at last: people may not know of it. Its own effects are woken as they are."""

Look = Callable[[Sequence[UUID]], Awaitable[Failures]]

_log = get_logger("scheduler.incarnations")


@dataclass(slots=True)
class _Pass:
    """One walk through everything open, because of these streams of the bus."""

    stamps: Mapping[str, str]
    to_wake: list[str]
    to_look_at: list[str]
    to_tell: list[str]
    after: UUID | None = None
    woken: int = 0

    @property
    def is_over(self) -> bool:
        return not self.to_wake and not self.to_look_at and not self.to_tell


class Incarnations:
    """Compares the bus with what was recorded of it; a walk that another leader began is begun again.

    `looks` settle keys and runs of `LOOKED_AT`, by category.
    """

    def __init__(self, store: Clockwork, bus: Bus, looks: Mapping[str, Look]) -> None:
        self._store = store
        self._bus = bus
        self._looks = looks
        self._pass: _Pass | None = None

    async def look(self) -> None:
        """Make again what is missing, and wake a part of what is open while the bus is not the one recorded."""
        made = await self._bus.redeclare()
        if made:
            _log.warning("streams or durables of the bus were missing", made=made)
        await self._take_overruns()
        stamps, recorded = await self._bus.incarnations(), await self._store.incarnations()
        other = {stream: stamp for stream, stamp in stamps.items() if recorded.get(stream) != stamp}
        if not other:
            self._pass = None
            return
        if self._pass is None or self._pass.stamps != other:
            self._pass = _Pass(other, list(OPEN), list(LOOKED_AT), list(TOLD_OF))
            _log.info("the bus is not the one recorded, waking everything open", streams=sorted(other))
        if await self._wake(self._pass):
            # Only now: a leader that dies before leaves the whole walk to the next one.
            await self._store.record_incarnations(other)
            _log.info("everything open was woken", streams=sorted(other), woken=self._pass.woken)
            self._pass = None

    async def _take_overruns(self) -> None:
        """A stream that dropped facts before they were consumed is as good as another one."""
        overruns = await self._bus.overruns()
        lost = sorted(d.name for d in DURABLES if d.name in overruns and d.stream == _UNFOUND)
        if lost:
            _log.warning("the bus dropped messages that were not consumed", durables=lost)
            await self._store.record_incarnations({_UNFOUND: None})
            self._pass = None

    async def _wake(self, walk: _Pass) -> bool:
        """Go on for as far as one look may; whether the walk is over."""
        reached = 0
        for _ in range(PAGES_PER_LOOK_MAX):
            if walk.is_over or reached >= WOKEN_PER_LOOK_MAX:
                break
            if walk.to_wake:
                reached += await self._wake_page(walk)
            else:
                reached += await (self._look_at_page(walk) if walk.to_look_at else self._tell_page(walk))
        return walk.is_over

    async def _wake_page(self, walk: _Pass) -> int:
        category = walk.to_wake[0]
        page = await self._store.wake_open(category, OPEN[category], limit=PAGE, after=walk.after)
        walk.after = page.next
        walk.woken += page.streams
        if page.next is None:
            walk.to_wake.pop(0)
        return page.streams

    async def _look_at_page(self, walk: _Pass) -> int:
        category = walk.to_look_at[0]
        page = await self._store.in_states(category, LOOKED_AT[category], limit=PAGE, after=walk.after)
        for stream_id, failure in (await self._looks[category](page.stream_ids)).items():
            if isinstance(failure, Unavailable):
                raise failure  # the next look begins this page again
            _log.warning("what is open was not settled", category=category, stream=str(stream_id), code=failure.code)
        walk.after = page.next
        if page.next is None:
            walk.to_look_at.pop(0)
        return len(page.stream_ids)

    async def _tell_page(self, walk: _Pass) -> int:
        category = walk.to_tell[0]
        page = await self._store.in_states(category, TOLD_OF[category], limit=PAGE, after=walk.after)
        if page.stream_ids:
            await self._bus.publish([wake_message(category, "effects", page.stream_ids)])
        walk.after = page.next
        if page.next is None:
            walk.to_tell.pop(0)
        return len(page.stream_ids)
