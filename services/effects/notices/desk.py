"""The desk: announce a try in the history, make it, report it. Never the second before the first."""

import asyncio
from collections import Counter
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from contracts.errors import MinutebookError, Unavailable
from libs.clock import monotonic
from libs.domain.notice import CATEGORY, Begin, Command, Fail, Finish, Lose, State
from libs.eventstore.port import Loaded, Store
from libs.faultpoints import faultpoint
from libs.ids import nonce
from libs.owner import Item, Owner
from libs.process import actor
from libs.process.finishing import finished
from libs.telemetry.logs import get_logger
from libs.telemetry.tracing import span
from services.effects.notices.lanes import Channel, Lanes
from services.effects.notices.outcomes import Lost, NotSent, Outcome, Sent
from services.effects.notices.ways import Try, Ways
from services.effects.reports import Reports

_ACTOR = actor("effects")

_log = get_logger("effects.notices")


@dataclass(slots=True)
class _Current:
    """A try that this process announced, or cannot tell whether it has: then `confirmed` is false, and it is not made.

    `sent` is set before the first byte may leave, `verdict` once it is known.
    """

    notice_id: UUID
    channel: Channel
    claim: UUID
    known_again: bool
    traceparent: str | None
    announced_at: float
    confirmed: bool = True
    sent: bool = False
    verdict: Command | None = None


@dataclass(frozen=True, slots=True)
class _Due:
    """A notice as it was read when its turn came."""

    notice_id: UUID
    notice: State
    tenant_group: UUID
    traceparent: str | None

    @property
    def channel(self) -> Channel:
        return self.tenant_group, self.notice.channel_id


class Desk:
    """Announces what can be sent at once, and sends it: a kill leaves nothing else in doubt."""

    def __init__(
        self,
        *,
        owner: Owner[State, Command],
        store: Store,
        ways: Ways,
        lanes: Lanes,
        start_within: timedelta,
        over_within: timedelta,
    ) -> None:
        self._owner = owner
        self._store = store
        self._ways = ways
        self._lanes = lanes
        self._reports: Reports[State, Command] = Reports(owner)
        self._start_seconds = start_within.total_seconds()
        self._over_within = over_within
        self._tries: dict[UUID, _Current] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self._draining = False

    def trying(self, notice_id: UUID) -> bool:
        """Whether a try of this process is under way or not yet reported."""
        return notice_id in self._tries

    async def begin(self, notice_ids: Collection[UUID]) -> dict[UUID, MinutebookError]:
        """Begin notices that are due, as many as there are free tries; the others wait here.

        Returns once those tries are announced, not when they are made. Failures are by notice.
        """
        idle = [notice_id for notice_id in notice_ids if notice_id not in self._tries]
        try:
            due = await self._due(idle)
        except Unavailable as error:
            return dict.fromkeys(idle, error)
        for one in due:
            self._lanes.wait(one.channel, one.notice_id)
        return await self._fill()

    async def drain(self, within: timedelta) -> None:
        """Begin nothing more and let the tries under way end; what has not ended then is reported as what it is."""
        self._draining = True
        async with self._turn:  # tries that are being announced are under way, or they would be lost unmade
            await self._hand_over()
        await finished(self._tasks, within)
        left = list(self._tries.values())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        reason = "the service stopped before it was answered"
        results = await self._owner.handle(
            [self._item(one.notice_id, one.verdict or _interrupted(one, reason), one.traceparent) for one in left]
        )
        for one, result in zip(left, results, strict=True):
            if isinstance(result, MinutebookError):
                _log.warning("try left unreported", notice_id=str(one.notice_id), code=result.code)

    async def _hand_over(self) -> None:
        """Let another replica begin what waits here at once, not when its watchdog looks."""
        waiting = self._lanes.give_up()
        if not waiting:
            return
        try:
            load = await self._store.load(CATEGORY.name, dict.fromkeys(waiting, 0))
            moves = [(notice_id, load.streams[notice_id].version, load.now) for notice_id in waiting]
            await self._store.move_wakes(CATEGORY.name, moves)
        except Unavailable as error:
            _log.warning("notices that wait are not handed over", notices=len(waiting), code=error.code)

    async def _due(self, notice_ids: Collection[UUID]) -> list[_Due]:
        """Those of these notices that may be tried now, as the history has them."""
        if not notice_ids:
            return []
        load = await self._store.load(CATEGORY.name, dict.fromkeys(notice_ids, 0))
        due = []
        for notice_id in notice_ids:
            stream = load.streams[notice_id]
            notice = fold(stream)
            if stream.tenant_group is None or notice.status != "due" or (notice.again_at or load.now) > load.now:
                continue
            due.append(_Due(notice_id, notice, stream.tenant_group, stream.events[0].metadata.traceparent))
        return due

    async def _fill(self) -> dict[UUID, MinutebookError]:
        failures: dict[UUID, MinutebookError] = {}
        async with self._turn:
            while not self._draining and (taken := self._lanes.take(self._under_way())):
                # Two messages may have read a notice as due, and the try of the other one is under way.
                if wanted := [notice_id for notice_id in taken if not self.trying(notice_id)]:
                    failures.update(await self._announce(wanted))
        return failures

    def _under_way(self) -> Mapping[Channel, int]:
        return Counter(one.channel for one in self._tries.values())

    async def _announce(self, notice_ids: Sequence[UUID]) -> dict[UUID, MinutebookError]:
        """Commit `sending` for those that are still due, then start their tries."""
        try:
            due = await self._due(notice_ids)
            ready = [await self._ways.ready(one.notice_id, one.notice, one.tenant_group) for one in due]
        except Unavailable as error:
            return dict.fromkeys(notice_ids, error)
        tries = [
            _Current(
                notice_id=one.notice_id,
                channel=one.channel,
                claim=nonce(),
                known_again=try_.known_again,
                traceparent=one.traceparent,
                announced_at=monotonic(),  # before the commit: the try starts too early rather than too late
            )
            for one, try_ in zip(due, ready, strict=True)
        ]
        results = await self._owner.handle(
            [
                self._item(one.notice_id, Begin(claim=one.claim, within=self._over_within), one.traceparent, one.claim)
                for one in tries
            ]
        )
        faultpoint("notice.sending")
        failures: dict[UUID, MinutebookError] = {}
        for one, try_, result in zip(tries, ready, results, strict=True):
            if not isinstance(result, MinutebookError):
                if result.state.status == "sending" and result.state.claim == one.claim:
                    self._start(one, self._try(one, try_))
                continue
            failures[one.notice_id] = result
            if isinstance(result, Unavailable):
                # The announcement may stand all the same. Then it ends as not sent; else the report is refused.
                one.confirmed = False
                self._start(one, _known(_not_sent(one, "the announcement was not confirmed, so nothing was sent")))
        return failures

    def _start(self, one: _Current, outcome: Coroutine[None, None, Command]) -> None:
        self._tries[one.notice_id] = one
        task = asyncio.create_task(self._carry_out(one, outcome), name=f"notice {one.notice_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, one: _Current, outcome: Coroutine[None, None, Command]) -> None:
        """Make a try, report it, and let the next one that waits take its place."""
        try:
            one.verdict = await outcome
            await self._reports.record(one.notice_id, one.verdict, traceparent=one.traceparent, announced=one.confirmed)
        finally:
            del self._tries[one.notice_id]
        for notice_id, error in (await self._fill()).items():
            _log.warning("notice not begun", notice_id=str(notice_id), code=error.code)

    async def _try(self, one: _Current, ready: Try) -> Command:
        try:
            with span("notice.send", traceparent=one.traceparent, attributes={"notice.channel": one.channel[1]}):
                return await self._make(one, ready)
        except Exception as error:
            _log.exception("notice failed in our own code", notice_id=str(one.notice_id))
            return _interrupted(one, f"{type(error).__name__} while sending; see the log")

    async def _make(self, one: _Current, ready: Try) -> Command:
        if isinstance(ready.send, NotSent):
            return _verdict(one, ready.send)
        if monotonic() - one.announced_at > self._start_seconds:
            # This process may have been frozen, and the notice may have been sent elsewhere meanwhile.
            return _not_sent(one, "not started in time")
        one.sent = True
        outcome = await ready.send()
        faultpoint("notice.sent")
        return _verdict(one, outcome)

    @staticmethod
    def _item(
        notice_id: UUID, command: Command, traceparent: str | None = None, set_claim: UUID | None = None
    ) -> Item[Command]:
        return Item(
            stream_id=notice_id,
            command=command,
            actor=_ACTOR,
            causation=notice_id,
            traceparent=traceparent,
            set_claim=set_claim,
        )


def fold(stream: Loaded) -> State:
    """The notice that a loaded stream adds up to."""
    return CATEGORY.fold(tuple(recorded.event for recorded in stream.events))


async def _known(command: Command) -> Command:
    return command


def _verdict(one: _Current, outcome: Outcome) -> Command:
    match outcome:
        case Sent():
            return Finish(claim=one.claim)
        case NotSent(reason=reason, final=final):
            return Fail(claim=one.claim, message=reason, final=final)
        case Lost(reason=reason):
            return Lose(claim=one.claim, reason=reason, known_again=one.known_again)


def _not_sent(one: _Current, message: str) -> Fail:
    return Fail(claim=one.claim, message=message)


def _interrupted(one: _Current, reason: str) -> Fail | Lose:
    if one.sent:
        return Lose(claim=one.claim, reason=reason, known_again=one.known_again)
    return _not_sent(one, reason)
