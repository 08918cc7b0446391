"""What a runner does beside executing: keeps its leases, ends those of others, and stops work whose run has ended."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from contracts.envelope import Address
from contracts.errors import MinutebookError, Unavailable
from contracts.events.run import RunStepCancelled, RunStepQueued
from libs.clock import monotonic
from libs.config import Settings
from libs.domain import attempt
from libs.domain.lifecycle import ATTEMPT, RUN_OPEN, terminal
from libs.eventstore.port import HeadView, Loaded, Store
from libs.owner import Done, Item, Owner
from libs.process import actor
from libs.telemetry import metrics
from libs.telemetry.logs import get_logger
from services.runner.hand import Hand

LOOK_SECONDS: Final = 3.0
"""How often a runner looks whether its claims still stand. A cancel that another replica heard reaches it so."""

Failures = Mapping[UUID, MinutebookError]

_OPEN: Final = frozenset(ATTEMPT) - terminal(ATTEMPT) - {"absent"}

_log = get_logger("runner.duties")


class Keeper:
    """Renews what is in hand, all in one statement, and stops what is no longer held."""

    def __init__(self, hand: Hand, store: Store, ended: "RunsEnded", settings: Settings) -> None:
        self._hand = hand
        self._store = store
        self._ended = ended
        self._lease = timedelta(seconds=settings.runner_lease_seconds)
        self._renew_seconds = settings.runner_renew_seconds

    async def keeping(self) -> None:
        """Look at every claim in hand for ever, and renew when it is time."""
        renewed = monotonic()
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, self._renew_seconds))
            claims = self._hand.claims()
            if not claims:
                continue
            try:
                if monotonic() - renewed >= self._renew_seconds:
                    held = await self._store.renew(claims, lease=self._lease)
                    renewed = monotonic()
                else:
                    held = await self._standing(claims)
                await self._ended.look(held)
            except Unavailable as error:
                _log.debug("cannot look at leases", claims=len(claims), code=error.code)
                continue
            for attempt_id, claim in claims:
                if attempt_id not in held:
                    self._hand.abandon(attempt_id, claim, why="its claim is not the current one any more")

    async def _standing(self, claims: Sequence[tuple[UUID, UUID]]) -> frozenset[UUID]:
        """The attempts of these (attempt, claim) pairs whose claim is still the current one."""
        heads = await self._store.heads(attempt.CATEGORY.name, [attempt_id for attempt_id, _ in claims])
        return frozenset(i for i, claim in claims if i in heads and heads[i].claim == claim)


class Wakes:
    """Woken attempts: a lease that has ended makes its attempt ready again, or fails it."""

    def __init__(
        self,
        owner: Owner[attempt.State, attempt.Command],
        store: Store,
        ended: "RunsEnded",
        settings: Settings,
    ) -> None:
        self._owner = owner
        self._store = store
        self._ended = ended
        self._lost_max = settings.leases_lost_max

    async def on_wake(self, category: str, stream_ids: Sequence[UUID]) -> Failures:
        """Cancel what no run needs, end the leases whose time has passed; a wake that came for nothing is moved."""
        if category != attempt.CATEGORY.name:
            return {}
        failures = await self._ended.look(stream_ids)
        moves: list[tuple[UUID, int, datetime | None]] = []
        lost: list[Item[attempt.Command]] = []
        heads = await self._store.heads(category, stream_ids)
        started = await self._started([attempt_id for attempt_id, head in heads.items() if _unheld(head)])
        for attempt_id, head in heads.items():
            if _unheld(head):
                lost.append(self._lose(attempt_id, started[attempt_id], gate=None))
            elif head.claim is not None and head.lease_ended:
                lost.append(self._lose(attempt_id, head.claim, gate=head.claim))
            else:
                moves.append((attempt_id, head.version, head.lease_until if head.claim else None))
        if moves:
            await self._store.move_wakes(attempt.CATEGORY.name, moves)
        results = await self._owner.handle(lost)
        metrics.LEASES_EXPIRED.inc(sum(1 for result in results if isinstance(result, Done) and result.changed))
        return failures | {
            item.stream_id: result
            for item, result in zip(lost, results, strict=True)
            if isinstance(result, MinutebookError)
        }

    async def _started(self, attempt_ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
        """The claims that started these attempts, as their streams have them."""
        if not attempt_ids:
            return {}
        load = await self._store.load(attempt.CATEGORY.name, dict.fromkeys(attempt_ids, 0))
        claims = {}
        for attempt_id, loaded in load.streams.items():
            claims[attempt_id] = attempt.CATEGORY.fold(tuple(recorded.event for recorded in loaded.events)).claim
        return {attempt_id: claim for attempt_id, claim in claims.items() if claim is not None}

    def _lose(self, attempt_id: UUID, claim: UUID, *, gate: UUID | None) -> Item[attempt.Command]:
        return Item(
            stream_id=attempt_id,
            command=attempt.LoseLease(attempt_id=attempt_id, claim=claim, lost_max=self._lost_max),
            actor=actor("runner"),
            causation=claim,
            claim=gate,
            release=True,
        )


def _unheld(head: HeadView) -> bool:
    """Whether a running attempt's head knows no claim: heads that were rebuilt from the history have lost theirs."""
    return head.claim is None and head.state == "running"


class RunsEnded:
    """Cancels the open attempts of runs that were cancelled or failed, and those that their run waits for no more."""

    def __init__(self, owner: Owner[attempt.State, attempt.Command], store: Store, hand: Hand) -> None:
        self._owner = owner
        self._store = store
        self._hand = hand

    async def on_facts(self, type_: str, addresses: Sequence[Address]) -> Failures:
        """Record the cancels, and stop those attempts that this runner carries out.

        Only attempts that were queued before the run's end are meant: a message may come late, after a retry.
        """
        if type_ == "run.step_cancelled":
            return await self._steps_cancelled(addresses)
        ended = {address.stream_id: address for address in addresses}
        load = await self._store.load("run", dict.fromkeys(ended, 0))
        over = {
            attempt_id: _End(run_id, type_.replace("run.", "run "), address.traceparent)
            for run_id, address in ended.items()
            for attempt_id in _queued_before(load.streams[run_id], address.version)
        }
        failures = await self._cancel(over)
        return {over[attempt_id].run_id: error for attempt_id, error in failures.items()}

    async def _steps_cancelled(self, addresses: Sequence[Address]) -> Failures:
        """Cancel the attempts that these facts name, such as those of branches that lost."""
        traces = {(address.stream_id, address.version): address.traceparent for address in addresses}
        after: dict[UUID, int] = {}
        for run_id, version in traces:
            after[run_id] = min(after.get(run_id, version), version - 1)
        load = await self._store.load("run", after)
        over = {
            recorded.event.attempt_id: _End(run_id, recorded.event.reason, traces[run_id, recorded.version])
            for run_id, stream in load.streams.items()
            for recorded in stream.events
            if (run_id, recorded.version) in traces
            and isinstance(recorded.event, RunStepCancelled)
            and recorded.event.attempt_id is not None
        }
        failures = await self._cancel(over)
        return {over[attempt_id].run_id: error for attempt_id, error in failures.items()}

    async def look(self, attempt_ids: Collection[UUID]) -> dict[UUID, MinutebookError]:
        """Cancel those of these attempts whose run is over: what a message that was lost would have said."""
        heads = await self._store.heads(attempt.CATEGORY.name, attempt_ids)
        open_ = {i: h.run_id for i, h in heads.items() if h.state in _OPEN and h.run_id is not None}
        runs = await self._store.heads("run", set(open_.values()))
        return await self._cancel(
            {
                attempt_id: _End(run_id, f"run {runs[run_id].state}", None)
                for attempt_id, run_id in open_.items()
                if run_id in runs and runs[run_id].state not in RUN_OPEN
            }
        )

    async def _cancel(self, over: Mapping[UUID, "_End"]) -> dict[UUID, MinutebookError]:
        items: list[Item[attempt.Command]] = [
            Item(
                stream_id=attempt_id,
                command=attempt.Cancel(reason=end.reason),
                actor=actor("runner"),
                causation=end.run_id,
                traceparent=end.traceparent,
                release=True,
            )
            for attempt_id, end in over.items()
        ]
        failures: dict[UUID, MinutebookError] = {}
        for attempt_id, result in zip(over, await self._owner.handle(items), strict=True):
            if isinstance(result, MinutebookError):
                failures[attempt_id] = result
            elif result.state.status == "cancelled":
                self._hand.abandon(attempt_id, None, why=over[attempt_id].reason)
        return failures


@dataclass(frozen=True, slots=True)
class _End:
    """Why an attempt is to stop, and whose it is."""

    run_id: UUID
    reason: str
    traceparent: str | None


def _queued_before(run: Loaded, version: int) -> list[UUID]:
    return [
        recorded.event.attempt_id
        for recorded in run.events
        if recorded.version < version and isinstance(recorded.event, RunStepQueued)
    ]
