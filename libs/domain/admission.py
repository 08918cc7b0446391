"""Who may work under one concurrency key of a definition, and who waits for it. One stream per key serialises them.

A run asks and gives back by facts of its own stream; here they are settled. Each settlement is guarded by the runs that
it speaks of: whom it lets in or makes wait is open, whom it lets go is over. So a message that comes late, twice or in
the wrong order can neither give a place to a run that is over nor take it from one that works.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

from contracts.base import Event
from contracts.events import admission as e
from libs.domain import lifecycle
from libs.domain.core import NOTHING, Category, Decided, Guard, never, no_run

TURNED_AWAY_REMEMBERED: Final = 1_000


@dataclass(frozen=True, slots=True)
class State:
    """`holders` work, `queued` wait in the order in which they came.

    `turned_away` are those that were refused or superseded lately. They never ask again, and if a message repeats what
    they asked while they hear of it, they get nothing: it would be held by nobody.
    """

    status: str = "absent"
    definition_id: str = ""
    key: str = ""
    limit: int = 1
    holders: tuple[UUID, ...] = ()
    queued: tuple[UUID, ...] = ()
    turned_away: tuple[UUID, ...] = ()

    def place(self, run_id: UUID) -> int | None:
        """Where a run stands in the queue, from 1; None when it does not wait."""
        return self.queued.index(run_id) + 1 if run_id in self.queued else None


@dataclass(frozen=True, slots=True)
class Wanted:
    """An open run that asks for its place. `working`: it works already, and is let in whatever the limit says."""

    run_id: UUID
    at: datetime
    definition_id: str
    key: str
    limit: int
    mode: Literal["queue", "coalesce"]
    max_queued: int
    working: bool = False


@dataclass(frozen=True, slots=True)
class Settle:
    """What is known of runs under the key: who asks, and who is over.

    `asked_at` says when those asked that wait already, for a key that keeps only the newest of them.
    """

    wanted: tuple[Wanted, ...] = ()
    over: frozenset[UUID] = frozenset()
    asked_at: Mapping[UUID, datetime] = field(default_factory=dict)


def decide(command: Settle, state: State, now: datetime) -> Decided:
    """Return who gets a place, waits for one, gives way or is refused; nothing when all of it is known already.

    Places that became free go to those that wait, in their order, before anybody who asks now.
    """
    settling = _Settling(state, now)
    settling.release(command.over)
    settling.let_in()
    # As sets, and only where somebody asks: a queue may be long, and looking through it is what costs.
    turned_away = frozenset(settling.state.turned_away)
    new = sorted(
        (wanted for wanted in command.wanted if wanted.run_id not in turned_away),
        key=lambda wanted: (wanted.at, wanted.run_id),
    )
    for wanted in new:
        if wanted.working:
            settling.grant(wanted.run_id, wanted)
    known = frozenset((*settling.state.holders, *settling.state.queued)) if new else frozenset()
    waiting = [wanted for wanted in new if wanted.run_id not in known]
    settling.coalesce([w for w in waiting if w.mode == "coalesce"], command.asked_at)
    for wanted in waiting:
        if wanted.mode == "queue":
            settling.enqueue(wanted)
    settling.let_in()
    return settling.decided()


class _Settling:
    """A settlement as it is worked out: its facts so far, and the state after them."""

    def __init__(self, state: State, now: datetime) -> None:
        self.state = state
        self._now = now
        self._events: list[e.AdmissionEvent] = []
        self._guards: dict[UUID, Guard] = {}

    def decided(self) -> Decided:
        if not self._events:
            return NOTHING
        return Decided(events=tuple(self._events), guards=tuple(self._guards.values()))

    def release(self, over: frozenset[UUID]) -> None:
        """Take back the places of runs that are over, held or waited for."""
        gone = [run_id for run_id in self.state.holders if run_id in over]
        if len(gone) < len(over):
            gone += [run_id for run_id in self.state.queued if run_id in over]
        for run_id in gone:
            self._guards[run_id] = Guard("run", run_id, lifecycle.RUN_OVER)
            self._emit(e.AdmissionReturned(at=self._now, run_id=run_id))

    def let_in(self) -> None:
        """Give free places to those that wait. Whether one is over meanwhile, its own return will say."""
        while self.state.queued and len(self.state.holders) < self.state.limit:
            state = self.state
            self._emit(
                e.AdmissionGranted(
                    at=self._now,
                    run_id=state.queued[0],
                    definition_id=state.definition_id,
                    key=state.key,
                    limit=state.limit,
                )
            )

    def grant(self, run_id: UUID, wanted: Wanted) -> None:
        if run_id in self.state.holders:
            return
        self._guard(run_id)
        self._emit(
            e.AdmissionGranted(
                at=self._now, run_id=run_id, definition_id=wanted.definition_id, key=wanted.key, limit=wanted.limit
            )
        )

    def enqueue(self, wanted: Wanted) -> None:
        """Let a run in or have it wait behind all others; refuse it when as many wait as may."""
        if not self.state.queued and len(self.state.holders) < wanted.limit:
            self.grant(wanted.run_id, wanted)
        elif len(self.state.queued) >= wanted.max_queued:
            reason = (
                f"{len(self.state.queued)} runs wait under concurrency key {wanted.key!r} already; "
                "start it again when one of them has begun, or raise `concurrency.max_queued`"
            )
            self._guard(wanted.run_id)
            self._emit(e.AdmissionRefused(at=self._now, run_id=wanted.run_id, reason=reason))
        else:
            self._wait(wanted)

    def coalesce(self, wanted: list[Wanted], asked_at: Mapping[UUID, datetime]) -> None:
        """Of all that would wait keep the newest; the others give way to it. Nobody who works does."""
        if not wanted:
            return
        last = wanted[-1]
        free = 0 if self.state.queued else max(0, last.limit - len(self.state.holders))
        if free:
            newest, older = last.run_id, wanted[:-free]
            for granted in wanted[-free:]:
                self.grant(granted.run_id, granted)
        elif (newer := self._newest_queued(asked_at)) is not None and newer > (last.at, last.run_id):
            newest, older = newer[1], wanted  # these messages came late
        else:
            newest, older = last.run_id, wanted[:-1]
            self._wait(last)
        for run_id in self.state.queued:
            if run_id != newest:
                self._emit(e.AdmissionSuperseded(at=self._now, run_id=run_id, by=newest))
        for each in older:
            self._guard(each.run_id)
            self._emit(e.AdmissionSuperseded(at=self._now, run_id=each.run_id, by=newest))

    def _newest_queued(self, asked_at: Mapping[UUID, datetime]) -> tuple[datetime, UUID] | None:
        return max(((asked_at[i], i) for i in self.state.queued if i in asked_at), default=None)

    def _wait(self, wanted: Wanted) -> None:
        self._guard(wanted.run_id)
        self._emit(
            e.AdmissionQueued(
                at=self._now,
                run_id=wanted.run_id,
                definition_id=wanted.definition_id,
                key=wanted.key,
                limit=wanted.limit,
                mode=wanted.mode,
            )
        )

    def _guard(self, run_id: UUID) -> None:
        self._guards[run_id] = Guard("run", run_id, lifecycle.RUN_OPEN)

    def _emit(self, event: e.AdmissionEvent) -> None:
        self._events.append(event)
        self.state = evolve(self.state, event)


def evolve(state: State, event: Event) -> State:
    """The state after one more fact."""
    match event:
        case e.AdmissionGranted(run_id=run_id):
            opened = replace(state, definition_id=event.definition_id, key=event.key, limit=event.limit)
            return _settled(opened, (*_without(state.holders, run_id), run_id), _without(state.queued, run_id))
        case e.AdmissionQueued(run_id=run_id):
            opened = replace(state, definition_id=event.definition_id, key=event.key, limit=event.limit)
            return _settled(opened, state.holders, (*state.queued, run_id))
        case e.AdmissionReturned(run_id=run_id) if run_id in state.holders:
            return _settled(state, _without(state.holders, run_id), state.queued)
        case e.AdmissionReturned(run_id=run_id):
            return _settled(state, state.holders, _without(state.queued, run_id))
        case e.AdmissionSuperseded(run_id=run_id) | e.AdmissionRefused(run_id=run_id):
            away = (*state.turned_away, run_id)[-TURNED_AWAY_REMEMBERED:]
            return _settled(replace(state, turned_away=away), state.holders, _without(state.queued, run_id))
        case _:
            return state


def _without(runs: tuple[UUID, ...], run_id: UUID) -> tuple[UUID, ...]:
    if runs and runs[0] == run_id:  # whose turn it is
        return runs[1:]
    return tuple(run for run in runs if run != run_id)


def _settled(state: State, holders: tuple[UUID, ...], queued: tuple[UUID, ...]) -> State:
    return replace(state, status="busy" if holders or queued else "idle", holders=holders, queued=queued)


def _columns(state: State) -> Mapping[str, Any]:
    return {
        "definition_id": state.definition_id,
        "key": state.key,
        "holders": len(state.holders),
        "queued": len(state.queued),
    }


CATEGORY: Final[Category[State]] = Category(
    name="admission",
    initial=State(),
    evolve=evolve,
    status=lambda state: state.status,
    columns=_columns,
    wake_at=never,
    run_id=no_run,
    terminal=lifecycle.terminal(lifecycle.ADMISSION),
)
