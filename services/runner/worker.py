"""Claims ready attempts for free slots and starts them, a batch at a time."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from contracts.envelope import Doorbell
from contracts.errors import Conflict, MinutebookError, Rejected, Unavailable
from libs.bus.port import ACK, Bus, Delivered, Disposition, Message
from libs.clock import monotonic
from libs.config import Settings
from libs.domain import attempt
from libs.eventstore.port import Claimed, Load, Store
from libs.faultpoints import faultpoint
from libs.ids import mint
from libs.owner import Done, Item, Owner
from libs.process import actor
from libs.telemetry import metrics
from libs.telemetry.logs import get_logger
from services.runner.execution import Execution, Work
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

_HAND_BACK: Final = Disposition("nak")

_log = get_logger("runner")


@dataclass(frozen=True, slots=True)
class _Read:
    """A claimed attempt as its stream stands."""

    claimed: Claimed
    state: attempt.State
    tenant_group: UUID
    traceparent: str | None


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
        self._execution = Execution(executors, self._reports)
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
                await self._begin(claimed)
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

    async def _begin(self, claimed: Sequence[Claimed]) -> None:
        """Record the starts of a batch of claims and carry each out as a task of its own."""
        started, waiting = await self._record_starts(claimed)
        for work in started:
            self.hand.begin(work.attempt_id, work.claim, self._execution.carry_out(work))
        for claim in waiting:
            self.hand.begin(claim.attempt_id, claim.claim, self._begin_later(claim))

    async def _begin_later(self, claim: Claimed) -> None:
        """Try until the record answers, under the claim that is held; the lease decides who may go on trying.

        Given back and claimed again at once, it would lose the few leases that it may lose to a record without room.
        """
        delay = START_AGAIN_SECONDS
        while True:
            await asyncio.sleep(delay)
            delay = min(delay * 2, START_AGAIN_SECONDS_MAX)
            started, waiting = await self._record_starts([claim])
            for work in started:
                await self._execution.carry_out(work)
            if not waiting:
                return

    async def _record_starts(self, claimed: Sequence[Claimed]) -> tuple[list[Work], list[Claimed]]:
        """Record what can be recorded now: what was started, and which claims the record had no answer for."""
        try:
            load = await self._store.load("attempt", {claim.attempt_id: 0 for claim in claimed})
            read = _read(load, claimed)
            results, requests = await asyncio.gather(self._start(read, load), self._requests(read))
        except (Unavailable, Conflict) as error:
            _log.debug("starts not recorded yet", claims=len(claimed), code=error.code)
            return [], list(claimed)
        except MinutebookError as error:
            _log.warning("claims cannot be started, giving them back", claims=len(claimed), code=error.code)
            await self._give_back([(c.attempt_id, c.claim) for c in claimed])
            return [], []
        started: list[Work] = []
        waiting: list[Claimed] = []
        stuck: list[tuple[UUID, UUID]] = []
        for item, result in zip(read, results, strict=True):
            attempt_id, claim = item.claimed.attempt_id, item.claimed.claim
            match result:
                case Done():
                    content = requests.get(result.state.request.digest) if result.state.request else None
                    started.append(Work(attempt_id, claim, result.state, content, item.traceparent))
                case Rejected():
                    _log.info("start refused", attempt_id=str(attempt_id), code=result.code)
                    self.hand.drop(attempt_id, claim)
                case Unavailable() | Conflict():
                    _log.debug("start not recorded yet", attempt_id=str(attempt_id), code=result.code)
                    waiting.append(item.claimed)
                case _:
                    _log.warning("start not recorded", attempt_id=str(attempt_id), code=result.code)
                    stuck.append((attempt_id, claim))
        await self._give_back(stuck)
        return started, waiting

    async def _start(self, read: Sequence[_Read], load: Load) -> Sequence[Done[attempt.State] | MinutebookError]:
        return await self._owner.handle(
            [
                Item(
                    stream_id=item.claimed.attempt_id,
                    command=attempt.Start(claim=item.claimed.claim, runner=self._runner),
                    actor=actor("runner"),
                    causation=item.claimed.claim,
                    claim=item.claimed.claim,
                )
                for item in read
            ],
            loaded=load,
        )

    async def _requests(self, read: Sequence[_Read]) -> Mapping[str, bytes]:
        """The requests' content by digest, one query per tenant group. Content is its digest, whoever's it is."""
        digests: defaultdict[UUID, set[str]] = defaultdict(set)
        for item in read:
            if item.state.request is not None:
                digests[item.tenant_group].add(item.state.request.digest)
        found: dict[str, bytes] = {}
        for tenant_group, wanted in digests.items():
            found.update(await self._store.blobs(tenant_group, wanted))
        return found

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


def _read(load: Load, claimed: Sequence[Claimed]) -> list[_Read]:
    read = []
    for claim in claimed:
        loaded = load.streams[claim.attempt_id]
        if loaded.tenant_group is None:
            raise Unavailable("attempt.not_seen", "a claimed attempt is not visible yet")
        state = attempt.CATEGORY.fold(tuple(recorded.event for recorded in loaded.events))
        read.append(_Read(claim, state, loaded.tenant_group, loaded.events[0].metadata.traceparent))
    return read
