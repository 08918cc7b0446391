"""The ledger: announce a call in the history, make it, report it. Never the second before the first."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from contracts.errors import MinutebookError, Unavailable
from contracts.events.effect import EffectInDoubt
from libs.clock import monotonic
from libs.domain import lifecycle
from libs.domain.effect import CATEGORY, Begin, Cancel, Command, Doubt, Fail, Finish, State
from libs.eventstore.port import Loaded, Store
from libs.faultpoints import faultpoint
from libs.ids import nonce
from libs.mcp import Answered, NotSent, Outcome, call_tool
from libs.owner import Item, Owner
from libs.process import actor
from libs.process.finishing import finished
from libs.telemetry.logs import get_logger
from libs.telemetry.tracing import span
from services.effects.connectors import Call, Connectors
from services.effects.gates import Gates, Server
from services.effects.holding import Holding
from services.effects.links import back_link
from services.effects.outcomes import meta_of, verdict
from services.effects.refusal import Refusal
from services.effects.reports import Reports
from services.effects.scrubbing import scrubbed
from services.effects.turns import Turn, Turns

CallTool = Callable[..., Awaitable[Outcome]]
"""Makes one tool call, as `libs.mcp.call_tool` does."""

RunUrl = Callable[[UUID], str]
"""Where people find a run."""

_ACTOR = actor("effects")
_RUN_OVER: Final = lifecycle.terminal(lifecycle.RUN)

_log = get_logger("effects.ledger")


@dataclass(slots=True)
class _Current:
    """A call that this process announced, or cannot tell whether it has: that is not made, `unconfirmed` says why.

    `sent` is set before the first byte may leave, `verdict` once it is known.
    """

    effect_id: UUID
    server: Server
    claim: UUID
    traceparent: str | None
    announced_at: float
    unconfirmed: Unavailable | None = None
    sent: bool = False
    verdict: Command | None = None


class Ledger:
    """Announces what can be called at once, and calls it: a kill leaves nothing else in doubt."""

    def __init__(
        self,
        *,
        owner: Owner[State, Command],
        store: Store,
        connectors: Connectors,
        turns: Turns,
        gates: Gates,
        start_within: timedelta,
        margin: timedelta,
        run_url: RunUrl,
        call: CallTool = call_tool,
    ) -> None:
        self._owner = owner
        self._store = store
        self._connectors = connectors
        self._call_tool = call
        self._start_within = start_within
        self._margin = margin
        self._run_url = run_url
        self._gates = gates
        self._reports = Reports(owner)
        self._turns = turns
        self._holding = Holding()
        self._calls: dict[UUID, _Current] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self._draining = False
        self._later: asyncio.TimerHandle | None = None

    def calling(self, effect_id: UUID) -> bool:
        """Whether a call of this process is under way or not yet reported."""
        return effect_id in self._calls

    def busy(self, server: Server) -> int:
        """How many calls to a server are under way here."""
        return self._under_way()[server]

    async def begin(self, wanted: Mapping[UUID, int]) -> dict[UUID, MinutebookError]:
        """Begin effects (id → the arm that the run asked for), as many as there are free calls; the others wait here.

        Returns once those calls are announced, not when they are made. Failures are by effect.
        """
        idle = [effect_id for effect_id in wanted if effect_id not in self._calls]
        # Who asks for one of these comes again: if its announcement does not stand, nobody else would begin it.
        unconfirmed = {
            effect_id: call.unconfirmed
            for effect_id, call in self._calls.items()
            if effect_id in wanted and call.unconfirmed is not None
        }
        if not idle:
            return dict(unconfirmed)
        try:
            load = await self._store.load("effect", dict.fromkeys(idle, 0))
            declared = {i: s for i, s in load.streams.items() if fold(s).status == "declared"}
            restored = await self._restored(declared)
            turns = [
                _turn(effect_id, stream, arm=wanted[effect_id], restored=effect_id in restored)
                for effect_id, stream in declared.items()
            ]
            await self._tell_limits({turn.server for turn in turns})
        except Unavailable as error:
            return {**unconfirmed, **dict.fromkeys(idle, error)}
        for turn in turns:
            self._turns.wait(turn)
        return {**unconfirmed, **await self._fill()}

    async def _restored(self, declared: Mapping[UUID, Loaded]) -> frozenset[UUID]:
        """Those whose run is older than the era, and which nobody has looked for at the target since it began."""
        run_of = {i: run_id for i, stream in declared.items() if (run_id := fold(stream).run_id) is not None}
        older = await self._store.of_earlier_eras(frozenset(run_of.values()))
        if not older:
            return frozenset()
        era = await self._store.era()
        return frozenset(i for i, run_id in run_of.items() if run_id in older and not _doubted(declared[i], era.number))

    async def _tell_limits(self, servers: Collection[Server]) -> None:
        """Let the gates hold to what is declared now."""
        for tenant_group, system in servers:
            self._gates.of((tenant_group, system), await self._connectors.limits(tenant_group, system))

    async def drain(self, within: timedelta) -> None:
        """Begin nothing more and let the calls under way end; what has not ended then is in doubt, and says so."""
        self._draining = True
        if self._later is not None:
            self._later.cancel()
        async with self._turn:  # calls that are being announced are under way, or they would be lost unmade
            await self._hand_over()
        await finished(self._tasks, within)
        left = list(self._calls.values())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        reason = "the service stopped before the call was answered"
        results = await self._owner.handle(
            [self._item(call.effect_id, call.verdict or _interrupted(call, reason), call.traceparent) for call in left]
        )
        for call, result in zip(left, results, strict=True):
            if isinstance(result, MinutebookError):
                _log.warning("call left unreported", effect_id=str(call.effect_id), code=result.code)

    async def _hand_over(self) -> None:
        """Let another replica begin what waits here at once, not when its watchdog looks."""
        waiting = self._turns.give_up()
        if not waiting:
            return
        try:
            now = await self._store.now()
            await self._store.move_wakes("effect", [(turn.effect_id, turn.version, now) for turn in waiting])
        except Unavailable as error:
            _log.warning("effects that wait are not handed over", effects=len(waiting), code=error.code)

    async def _fill(self) -> dict[UUID, MinutebookError]:
        failures: dict[UUID, MinutebookError] = {}
        async with self._turn:
            while not self._draining and (taken := self._turns.take(self._under_way())):
                # Two messages may have read an effect as declared, and the call of the other one is under way.
                if turns := [turn for turn in taken if not self.calling(turn.effect_id)]:
                    failures.update(await self._announce(turns))
            self._holding.note(self._turns.held(self._under_way()))
            self._come_back()
        return failures

    def _come_back(self) -> None:
        """Look again when time lets the next one go that a rate or an open breaker holds back."""
        if self._later is not None:
            self._later.cancel()
        at = None if self._draining else self._turns.opens_at()
        self._later = None if at is None else asyncio.get_running_loop().call_at(at, self._refill)

    def _refill(self) -> None:
        task = asyncio.create_task(self._fill_freed(), name="effects let go")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fill_freed(self) -> None:
        """Fill what has become free. What fails comes back by its wake."""
        for effect_id, error in (await self._fill()).items():
            _log.warning("effect not begun", effect_id=str(effect_id), code=error.code)

    def _under_way(self) -> Counter[Server]:
        return Counter(call.server for call in self._calls.values())

    async def _announce(self, turns: Sequence[Turn]) -> dict[UUID, MinutebookError]:
        """Commit `pending` for those that are still declared, then start their calls."""
        # Resolved now, so that nothing that may fail stands between an announcement and its call.
        try:
            resolved = [await self._connectors.resolve(turn.tenant_group, turn.effect) for turn in turns]
        except Unavailable as error:
            return dict.fromkeys((turn.effect_id for turn in turns), error)
        calls = [
            _Current(
                effect_id=turn.effect_id,
                server=turn.server,
                claim=nonce(),
                traceparent=turn.traceparent,
                announced_at=monotonic(),  # before the commit: the call starts too early rather than too late
            )
            for turn in turns
        ]
        results = await self._owner.handle(
            [
                self._item(
                    call.effect_id,
                    self._begin(turn, call, to_call),
                    call.traceparent,
                    None if turn.restored else call.claim,
                )
                for turn, call, to_call in zip(turns, calls, resolved, strict=True)
            ]
        )
        faultpoint("effect.pending")
        failures: dict[UUID, MinutebookError] = {}
        refused: list[Turn] = []
        for turn, call, to_call, result in zip(turns, calls, resolved, results, strict=True):
            if not isinstance(result, MinutebookError):
                if result.state.status == "pending" and result.state.claim == call.claim:
                    self._start(call, self._call(call, result.state, to_call))
            elif result.code == "append.guarded":
                refused.append(turn)
            else:
                failures[call.effect_id] = result
                if isinstance(result, Unavailable):
                    # The announcement may stand all the same. Then it ends as not sent; else the report is refused.
                    call.unconfirmed = result
                    message = "the announcement was not confirmed, so no call was made"
                    self._start(call, _known(_not_sent(call, message)))
        if refused:
            failures.update(await self._stand_back(refused))
        return failures

    def _begin(self, turn: Turn, call: _Current, to_call: Call | Refusal) -> Begin:
        """The announcement. Its call starts in time or not at all, is given up at its timeout, and then is over."""
        takes = to_call.timeout if isinstance(to_call, Call) else timedelta(0)
        within = self._start_within + takes + self._margin
        return Begin(claim=call.claim, arm=turn.arm, over_within=within, restored=turn.restored)

    async def _stand_back(self, turns: Sequence[Turn]) -> dict[UUID, MinutebookError]:
        """The run did not allow a write. Over: cancelled for good. Suspended or failed: wait for it, unwatched.

        One that goes on again by now may have said so to nobody who waited for it, so its write has its turn once more.
        """
        effect_ids = [turn.effect_id for turn in turns]
        try:
            heads = await self._store.heads("effect", effect_ids)
            declared = {i: h for i, h in heads.items() if h.state == "declared" and h.run_id is not None}
            runs = await self._store.heads("run", {h.run_id for h in declared.values() if h.run_id is not None})
            run_states = {i: runs[h.run_id].state for i, h in declared.items() if h.run_id is not None}
            parked = [
                (effect_id, declared[effect_id].version, None)
                for effect_id, state in run_states.items()
                if state not in lifecycle.RUN_ACTIVE | _RUN_OVER
            ]
            if parked:
                await self._store.move_wakes("effect", parked)
        except Unavailable as error:
            return dict.fromkeys(effect_ids, error)
        for turn in turns:
            if run_states.get(turn.effect_id) in lifecycle.RUN_ACTIVE:
                self._turns.wait(turn)
        return await self.cancel({i: state for i, state in run_states.items() if state in _RUN_OVER})

    async def cancel(self, over: Mapping[UUID, str]) -> dict[UUID, MinutebookError]:
        """Cancel what is still declared; effect → how its run ended."""
        results = await self._owner.handle(
            [self._item(effect_id, Cancel(reason=f"the run was {state}")) for effect_id, state in over.items()]
        )
        return {i: result for i, result in zip(over, results, strict=True) if isinstance(result, MinutebookError)}

    def _start(self, call: _Current, outcome: Coroutine[None, None, Command]) -> None:
        self._calls[call.effect_id] = call
        task = asyncio.create_task(self._carry_out(call, outcome), name=f"effect {call.effect_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, call: _Current, outcome: Coroutine[None, None, Command]) -> None:
        """Make a call, report it, and let the next one that waits take its place."""
        try:
            call.verdict = await outcome
            await self._reports.record(
                call.effect_id, call.verdict, traceparent=call.traceparent, announced=call.unconfirmed is None
            )
        finally:
            del self._calls[call.effect_id]
        await self._fill_freed()

    async def _call(self, call: _Current, effect: State, resolved: Call | Refusal) -> Command:
        try:
            with span("effect.call", traceparent=call.traceparent, attributes={"effect.tool": effect.tool}):
                return await self._make(call, effect, resolved)
        except Exception as error:
            _log.exception("call failed in our own code", effect_id=str(call.effect_id))
            return _interrupted(call, f"{type(error).__name__} while calling; see the log")

    async def _make(self, call: _Current, effect: State, resolved: Call | Refusal) -> Command:
        if isinstance(resolved, Refusal):
            return Fail(claim=call.claim, failure_class=resolved.failure_class, message=resolved.message)
        if monotonic() - call.announced_at > self._start_within.total_seconds():
            # This process may have been frozen, and somebody may have settled the effect meanwhile.
            return _not_sent(call, "not started in time")
        call.sent = True
        outcome = await self._call_tool(
            resolved.address,
            tool=resolved.tool.name,
            arguments=resolved.arguments,
            meta=meta_of(effect),
            timeout=resolved.timeout,
        )
        faultpoint("effect.called")
        self._gates.of(call.server).note(sent=not isinstance(outcome, NotSent))
        outcome = scrubbed(outcome, resolved.secrets)
        report = verdict(outcome, tool=resolved.tool, claim=call.claim)
        if not isinstance(report, Finish) or not isinstance(outcome, Answered):
            return report
        link, arguments = back_link(
            call.effect_id,
            effect,
            tool=resolved.tool,
            arguments=resolved.given,
            reference=report.reference,
            response=outcome.content,
            run_url=self._run_url_of(effect),
        )
        blobs = {**report.blobs, **arguments}
        return report.model_copy(update={"effect_id": call.effect_id, "back_link": link, "blobs": blobs})

    def _run_url_of(self, effect: State) -> str:
        assert effect.run_id is not None, "an effect that exists is of a run"
        return self._run_url(effect.run_id)

    @staticmethod
    def _item(
        effect_id: UUID, command: Command, traceparent: str | None = None, set_claim: UUID | None = None
    ) -> Item[Command]:
        return Item(
            stream_id=effect_id,
            command=command,
            actor=_ACTOR,
            causation=effect_id,
            traceparent=traceparent,
            set_claim=set_claim,
        )


def fold(stream: Loaded) -> State:
    """The effect that a loaded stream adds up to."""
    return CATEGORY.fold(tuple(recorded.event for recorded in stream.events))


def _turn(effect_id: UUID, stream: Loaded, *, arm: int, restored: bool) -> Turn:
    assert stream.tenant_group is not None, "what is declared exists"
    return Turn(
        effect_id,
        stream.version,
        stream.tenant_group,
        fold(stream),
        stream.events[0].metadata.traceparent,
        arm=arm,
        restored=restored,
    )


def _doubted(stream: Loaded, era: int) -> bool:
    """Whether an effect was in doubt for the sake of this era. It is declared again only once that was settled."""
    return any(
        isinstance(recorded.event, EffectInDoubt) and recorded.event.claim is None and recorded.era == era
        for recorded in stream.events
    )


async def _known(command: Command) -> Command:
    return command


def _not_sent(call: _Current, message: str) -> Fail:
    return Fail(claim=call.claim, failure_class="connector_unavailable", message=message)


def _interrupted(call: _Current, reason: str) -> Fail | Doubt:
    return Doubt(claim=call.claim, reason=reason) if call.sent else _not_sent(call, reason)
