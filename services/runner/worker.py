"""Claims ready attempts for free slots and starts them, a batch at a time."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias
from uuid import UUID

from contracts.envelope import Doorbell
from contracts.errors import Conflict, MinutebookError, Rejected, Unavailable
from libs.bus.port import ACK, Bus, Delivered, Disposition, Message
from libs.clock import monotonic
from libs.config import Settings
from libs.domain import attempt
from libs.eventstore.port import Claimed, Store
from libs.faultpoints import faultpoint
from libs.ids import mint
from libs.owner import Done, Item, Owner
from libs.process import actor
from libs.telemetry import metrics
from libs.telemetry.logs import get_logger
from services.runner.claimed import read_claimed
from services.runner.execution import Execution, Report, Work
from services.runner.executors import Executor
from services.runner.hand import Hand
from services.runner.reports import Reports

LOOK_BEHIND_SECONDS: Final = 0.1
"""How often, at most, a runner whose claim came back short looks whether that passed over work."""

START_AGAIN_SECONDS: Final = 0.25
START_AGAIN_SECONDS_MAX: Final = 5.0
"""Pauses between tries to record the start of an attempt that is claimed: doubled, up to this."""

RING_AGAIN_SECONDS: Final = 0.1
"""How often, at most, a runner whose slots are full tells the others that there is more."""

_Begun: TypeAlias = tuple[Work, Report | None]
"""What is to be carried out, or a report of it that has to be told in another way."""

_HAND_BACK: Final = Disposition("nak")

_log = get_logger("runner")


class Worker:
    """The slots of this runner and what fills them."""

    def __init__(
        self,
        *,
        runner: str,
        store: Store,
        bus: Bus,
        owner: Owner[attempt.State, attempt.Command],
        executors: Mapping[str, Executor],
        settings: Settings,
    ) -> None:
        self.hand = Hand(slots=settings.runner_slots, on_free=self._slot_free)
        self._runner = runner
        self._store = store
        self._bus = bus
        self._owner = owner
        self._executors = executors
        self._settings = settings
        self._reports = Reports(owner)
        self._execution = Execution(executors, self._reports, runner=runner)
        self._bell = asyncio.Event()
        self._subjects: frozenset[str] = frozenset()
        self._more = False
        self._rang = 0.0
        self._looked = 0.0
        self._draining = False
        self._filling: asyncio.Task[None] | None = None

    async def on_bell(self, batch: Sequence[Delivered]) -> Sequence[Disposition]:
        """Hear that there is work: remember where, and claim soon. The message itself is done with."""
        if self._draining:
            return [_HAND_BACK] * len(batch)
        heard = self._mine(message.subject for message in batch)
        if heard:
            self._subjects |= heard
            self._bell.set()
        return [ACK] * len(batch)

    async def claiming(self) -> None:
        """Claim whenever a bell rang or a slot came free; when nothing was heard for a while, look by itself."""
        while not self._draining:
            heard = await self._heard()
            # Shielded: were it cancelled between a claim and its start, that lease would have to end by itself.
            self._filling = asyncio.create_task(self._fill(look=not heard), name="claiming attempts")
            await asyncio.shield(self._filling)

    async def drain(self) -> None:
        """Claim no more, let what runs finish for a while, give the rest back at once, and close the executors."""
        self._draining = True
        if self._filling is not None:
            await asyncio.wait({self._filling})
        await self.hand.finish(timedelta(seconds=self._settings.drain_seconds))
        rest = await self.hand.let_go(why="the runner stops")
        await self._reports.flush()
        await self._give_back(rest)
        for executor in self._executors.values():
            await executor.close()

    async def _heard(self) -> bool:
        """Wait for a bell, or for the time after which an idle runner looks by itself."""
        try:
            async with asyncio.timeout(self._settings.runner_idle_seconds):
                await self._bell.wait()
        except TimeoutError:
            return False
        self._bell.clear()
        return True

    async def _fill(self, *, look: bool) -> None:
        """Claim as much as there are free slots, start it, and see whether there is more."""
        free = self.hand.free
        self._more = free == 0
        if self._more or self._draining:
            return
        try:
            if look:
                self._subjects = self._mine(await self._store.waiting())
            if not self._subjects:
                return
            lease = timedelta(seconds=self._settings.runner_lease_seconds)
            claimed = await self._store.claim(self._subjects, limit=free, lease=lease)
            if claimed:
                faultpoint("claim.taken")
                for claim in claimed:
                    self.hand.take(claim)
                    waited = claim.lease_until - lease - claim.queued_at
                    metrics.CLAIM_WAIT_SECONDS.observe(max(waited.total_seconds(), 0.0))
                await self._begin(claimed, claimed[0].lease_until - lease)
            full = len(claimed) == free
            self._more = full or await self._more_behind(claimed)
        except Unavailable as error:
            _log.debug("cannot look for work", code=error.code)
            return
        if full:
            await self._ring()
        if self._more and self.hand.free:
            self._bell.set()

    async def _more_behind(self, claimed: Sequence[Claimed]) -> bool:
        """Whether a claim that came back short passed over work whose run has ended, with more behind it.

        Seldom looked at while claims bring something: a runner that has become idle looks by itself.
        """
        now = monotonic()
        if claimed and now - self._looked < LOOK_BEHIND_SECONDS:
            return False
        self._looked = now
        found = self._mine(await self._store.waiting())
        self._subjects |= found  # of work whose bell was lost nothing else tells while other bells are heard
        return bool(found)

    async def _begin(self, claimed: Sequence[Claimed], now: datetime) -> None:
        """Record the starts of a batch of claims, at the database's clock as they had it, and carry each out as a task.

        What can be done at once is done by then, and recorded with its start.
        """
        begun, waiting = await self._record_starts(claimed, now)
        for work, report in begun:
            self.hand.begin(work.attempt_id, work.claim, self._go_on(work, report))
        for claim in waiting:
            self.hand.begin(claim.attempt_id, claim.claim, self._begin_later(claim, now))

    async def _begin_later(self, claim: Claimed, now: datetime) -> None:
        """Try until the record answers, under the claim that is held; the lease decides who may go on trying.

        Given back and claimed again at once, it would lose the few leases that it may lose to a record without room.
        """
        delay = START_AGAIN_SECONDS
        unread = replace(claim, stream=None)  # as it is now, and by the clock of now
        while True:
            await asyncio.sleep(delay)
            delay = min(delay * 2, START_AGAIN_SECONDS_MAX)
            begun, waiting = await self._record_starts([unread], now)
            for work, report in begun:
                await self._go_on(work, report)
            if not waiting:
                return

    async def _record_starts(self, claimed: Sequence[Claimed], now: datetime) -> tuple[list[_Begun], list[Claimed]]:
        """Record what can be recorded now: what goes on, and which claims the record had no answer for."""
        try:
            works, load = await read_claimed(self._store, claimed, now=now)
            reports = [self._execution.at_once(work) for work in works]
            items = [
                self._start(work) if report is None else report.item(work)
                for work, report in zip(works, reports, strict=True)
            ]
            results = await self._reports.write(items, loaded=load)
        except (Unavailable, Conflict) as error:
            _log.debug("starts not recorded yet", claims=len(claimed), code=error.code)
            return [], list(claimed)
        except MinutebookError as error:
            _log.warning("claims cannot be started, giving them back", claims=len(claimed), code=error.code)
            await self._give_back([(c.attempt_id, c.claim) for c in claimed])
            return [], []
        begun: list[_Begun] = []
        waiting: list[Claimed] = []
        stuck: list[tuple[UUID, UUID]] = []
        for claim, work, report, result in zip(claimed, works, reports, results, strict=True):
            match result:
                case Done() if report is None:
                    begun.append((work, None))
                case Done():
                    self.hand.drop(work.attempt_id, work.claim)
                case Rejected():
                    _log.info("start refused", attempt_id=str(work.attempt_id), code=result.code)
                    self.hand.drop(work.attempt_id, work.claim)
                case Unavailable() | Conflict():
                    _log.debug("start not recorded yet", attempt_id=str(work.attempt_id), code=result.code)
                    waiting.append(claim)
                case _ if report is not None:
                    begun.append((work, report))
                case _:
                    _log.warning("start not recorded", attempt_id=str(work.attempt_id), code=result.code)
                    stuck.append((work.attempt_id, work.claim))
        await self._give_back(stuck)
        return begun, waiting

    def _go_on(self, work: Work, report: Report | None) -> Coroutine[Any, Any, None]:
        """Carry out what was started; of what was done and could not be recorded as it is, say so."""
        return self._execution.carry_out(work) if report is None else self._execution.record(work, report)

    def _start(self, work: Work) -> Item[attempt.Command]:
        return Item(
            stream_id=work.attempt_id,
            command=attempt.Start(claim=work.claim, runner=self._runner),
            actor=actor("runner"),
            causation=work.claim,
            claim=work.claim,
        )

    async def _give_back(self, claims: Sequence[tuple[UUID, UUID]]) -> None:
        """End leases before their time, so that another runner goes on at once."""
        if not claims:
            return
        results = await self._owner.handle(
            [
                Item(
                    stream_id=attempt_id,
                    command=attempt.LoseLease(
                        attempt_id=attempt_id, claim=claim, lost_max=self._settings.leases_lost_max
                    ),
                    actor=actor("runner"),
                    causation=claim,
                    claim=claim,
                    release=True,
                )
                for attempt_id, claim in claims
            ]
        )
        for (attempt_id, claim), result in zip(claims, results, strict=True):
            self.hand.drop(attempt_id, claim)
            if isinstance(result, MinutebookError):
                _log.info("claim not given back", attempt_id=str(attempt_id), code=result.code)

    async def _ring(self) -> None:
        """Tell the other runners that there may be more than this one took."""
        now = monotonic()
        if now - self._rang < RING_AGAIN_SECONDS:
            return
        self._rang = now
        data = Doorbell(count=1).model_dump_json().encode()
        try:
            await self._bus.publish([Message(subject, data, id=str(mint())) for subject in self._subjects])
        except Unavailable as error:
            _log.info("bell not rung, idle runners look by themselves", code=error.code)

    def _mine(self, subjects: Iterable[str]) -> frozenset[str]:
        """Of `work.<executor>.<queue>` subjects those that this runner has the executor for."""
        return frozenset(subject for subject in subjects if subject.split(".")[1] in self._executors)

    def _slot_free(self) -> None:
        if self._more:
            self._bell.set()
