"""Callers who wait until a run has ended or parked: told by its facts as they are published, never by asking again."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from pydantic import ValidationError

from contracts.envelope import Envelope
from contracts.errors import Unavailable
from contracts.subjects import OVERHEARD, history
from libs.bus.port import Bus
from libs.clock import monotonic
from libs.domain.lifecycle import RUN_OPEN
from libs.eventstore.port import Store
from libs.telemetry.logs import get_logger

WAIT_SECONDS_MAX: Final = 60.0

LOOK_SECONDS: Final = 2.0
"""How often the heads of runs are looked at that were waited for this long: a message may be lost."""

_FINAL: Final = {history("run.completed"): "completed", history("run.cancelled"): "cancelled"}
"""Nothing follows these, so the fact itself says how the run stands."""

_PASSING: Final = (history("run.parked"), history("run.suspended"), history("run.failed"))
"""The run may have gone on since: its head says."""

_MOVING: Final = frozenset({"created", "running"})

_log = get_logger("api.waiting")


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands."""

    state: str
    version: int


@dataclass(eq=False, slots=True)
class Watch:
    """One caller's wait for one run."""

    run_id: UUID
    since: float = field(default_factory=monotonic)
    told: "asyncio.Future[Standing | None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def tell(self, standing: Standing | None) -> None:
        if not self.told.done():
            self.told.set_result(standing)


class Waiting:
    """Who waits for which run in this process. One subscription and one slow look serve all of them."""

    def __init__(self, bus: Bus, store: Store) -> None:
        self._store = store
        self._watches: defaultdict[UUID, list[Watch]] = defaultdict(list)
        self._looks: set[asyncio.Task[None]] = set()
        self._closed = False
        for subject in (*_FINAL, *_PASSING):
            bus.listen(subject, self._hear)

    @contextmanager
    def watch(self, run_id: UUID) -> Iterator[Watch]:
        """Hear of a run from now on. Begin before the run is asked to move, or its news may have passed."""
        watch = Watch(run_id)
        self._watches[run_id].append(watch)
        try:
            yield watch
        finally:
            self._watches[run_id].remove(watch)
            if not self._watches[run_id]:
                del self._watches[run_id]

    async def until_settled(self, watch: Watch, seconds: float, *, state: str | None = None) -> Standing:
        """Wait until the run has ended, is suspended, or waits for somebody or something; or until the time is over.

        `state` is what the run is known to be. Without it, or where that alone does not say that the run moves, its
        head is looked at first.

        Raises:
            contracts.errors.Unavailable: the database does not answer.
        """
        if state not in _MOVING:
            await self._look([watch.run_id])
        if self._closed:
            watch.tell(None)
        try:
            async with asyncio.timeout(seconds):
                told = await watch.told
        except TimeoutError:
            told = None
        return told or await self._standing(watch.run_id)

    async def looking(self) -> None:
        """Look at the runs that were waited for a while, for ever, all in one query."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            before = monotonic() - LOOK_SECONDS
            old = [run_id for run_id, watches in self._watches.items() if any(w.since <= before for w in watches)]
            if old:
                await self._look(old)

    def close(self) -> None:
        """Answer everybody with what is known now: the process stops."""
        self._closed = True
        for watches in self._watches.values():
            for watch in watches:
                watch.tell(None)

    def _hear(self, subject: str, data: bytes) -> None:
        if not self._watches:
            return
        try:
            envelope = Envelope.model_validate_json(data)
        except ValidationError:
            _log.warning("overheard what is no envelope", subject=subject, bytes=len(data))
            return
        mine = [fact for fact in envelope.facts if fact.stream_id in self._watches]
        if not mine:
            return
        state = _FINAL.get(subject)
        if state is None:
            look = asyncio.create_task(self._look_or_leave({fact.stream_id for fact in mine}), name="look at runs")
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)
            return
        for fact in mine:
            self._tell(fact.stream_id, Standing(state, fact.version))

    def _tell(self, run_id: UUID, standing: Standing) -> None:
        for watch in self._watches.get(run_id, ()):
            watch.tell(standing)

    async def _look_or_leave(self, run_ids: Collection[UUID]) -> None:
        try:
            await self._look(run_ids)
        except Unavailable as error:
            _log.info("cannot look at runs, a later look will", runs=len(run_ids), code=error.code)

    async def _look(self, run_ids: Collection[UUID]) -> None:
        """Tell those whose run has come to rest.

        A run that waits for a decision rests only while one is open: answered, it moves in a moment.
        """
        heads = await self._store.heads("run", run_ids)
        asking = [run_id for run_id, head in heads.items() if head.state == "waiting_decision"]
        open_ = await self._store.heads_of_runs("decision", asking, states={"open"}) if asking else ()
        answerable = {decision.run_id for decision in open_}
        for run_id, head in heads.items():
            moving = head.state in _MOVING or (head.state == "waiting_decision" and run_id not in answerable)
            if not moving:
                self._tell(run_id, Standing(head.state, head.version))

    async def _standing(self, run_id: UUID) -> Standing:
        head = (await self._store.heads("run", [run_id]))[run_id]
        return Standing(head.state, head.version)


assert _MOVING < RUN_OPEN, "a run that moves is open"
assert OVERHEARD.issuperset((*_FINAL, *_PASSING)), "what is listened to is published"
