"""One wait of a run on an event: opened by the run, matched by at most one event, closed when nobody waits any more.

Opening and looking back are two statements, as are storing an event and looking for waits, so whichever of the two is
committed last sees the other. The gate on this stream lets one of them win.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, assert_never
from uuid import UUID

from contracts.base import Actor, BlobRef, Event, Frozen, JsonObject
from contracts.errors import Rejected
from contracts.events.wait import WaitClosed, WaitLookedBack, WaitMatched, WaitOpened
from libs.domain import lifecycle
from libs.domain.core import NOTHING, Category, Decided, Guard, facts
from libs.language.matching import matches, probe

WATCHDOG: Final = timedelta(seconds=30)
"""An opening wait is looked at this often at the latest, in case the message that tells of it was lost."""

OPEN: Final = frozenset({"opening", "open"})
"""States in which a wait may take an event."""


@dataclass(frozen=True, slots=True)
class State:
    """Where a wait stands; `inbound_id` and what follows it are of the event that it took."""

    status: str = "absent"
    run_id: UUID | None = None
    step: str = ""
    source: str = ""
    match: JsonObject = field(default_factory=dict)
    since: datetime | None = None
    consumed: tuple[UUID, ...] = ()
    inbound_id: UUID | None = None
    external_id: str = ""
    event: str = ""
    keys: JsonObject = field(default_factory=dict)
    payload: BlobRef | None = None


class Arrival(Frozen):
    """An event that a wait may take."""

    inbound_id: UUID
    source: str
    external_id: str
    event: str
    keys: JsonObject
    payload: BlobRef


class Match(Frozen):
    """Take this event, if it is one that the wait asks for."""

    arrival: Arrival


class LookBack(Frozen):
    """What had come before was looked through: take the first that fits, or wait for what comes."""

    found: Arrival | None


class Deliver(Frozen):
    """Take this event, whatever the wait asks for: a person says so."""

    arrival: Arrival
    by: Actor


class Close(Frozen):
    """Nobody waits any more. `run_over` holds only while the run is over."""

    reason: str
    run_over: bool


class Look(Frozen):
    """Nothing to say: only moves a wake that has passed."""


Command = Match | LookBack | Deliver | Close | Look


def takes(state: State, arrival: Arrival) -> bool:
    """Whether the wait would take this event. A run takes an event once."""
    return (
        state.status in OPEN
        and arrival.source == state.source
        and arrival.inbound_id not in state.consumed
        and matches(state.match, arrival.event, arrival.keys)
    )


def decide(command: Command, state: State, now: datetime) -> Decided:
    """Return what follows from a command; nothing when it is already true, or the event is not the one.

    Raises:
        contracts.errors.Rejected: 409 for what a person delivers: ``wait.matched`` naming the event that it took,
            ``wait.closed``, ``wait.consumed`` when the run has taken that very event before; 404
            ``wait.not_found``.
    """
    match command:
        case Match(arrival=arrival):
            return _matched(state, arrival, now) if takes(state, arrival) else NOTHING
        case LookBack(found=found):
            if state.status != "opening":
                return NOTHING
            if found is not None and takes(state, found):
                return _matched(state, found, now)
            return facts(WaitLookedBack(at=now))
        case Deliver():
            return _deliver(command, state, now)
        case Close():
            if state.status not in OPEN or state.run_id is None:
                return NOTHING
            # The message may be older than a retry that opened the run again, with this wait in it.
            guards = (Guard("run", state.run_id, lifecycle.RUN_OVER),) if command.run_over else ()
            return facts(WaitClosed(at=now, reason=command.reason), guards=guards)
        case Look():
            return NOTHING
        case _:
            assert_never(command)


def _matched(state: State, arrival: Arrival, now: datetime, *, by: Actor | None = None) -> Decided:
    """A suspended run keeps its event until it is resumed; one that is over takes none."""
    assert state.run_id is not None, "an open wait has its run"
    matched = WaitMatched(
        at=now,
        inbound_id=arrival.inbound_id,
        external_id=arrival.external_id,
        event=arrival.event,
        keys=arrival.keys,
        payload=arrival.payload,
        by=by,
    )
    return facts(matched, guards=(Guard("run", state.run_id, lifecycle.RUN_OPEN),))


def _deliver(command: Deliver, state: State, now: datetime) -> Decided:
    arrival = command.arrival
    match state.status:
        case "absent":
            raise Rejected("wait.not_found", "there is no such wait", status=404)
        case "closed":
            raise Rejected("wait.closed", f"step {state.step!r} does not wait for an event any more", status=409)
        case "matched":
            raise Rejected(
                "wait.matched",
                f"step {state.step!r} has its event already, {state.external_id!r} of source {state.source!r}",
                status=409,
                inbound_id=str(state.inbound_id),
            )
        case _ if arrival.inbound_id in state.consumed:
            raise Rejected(
                "wait.consumed", f"the run has taken {arrival.external_id!r} before; it takes an event once", status=409
            )
        case _:
            return _matched(state, arrival, now, by=command.by)


def evolve(state: State, event: Event) -> State:
    """The state after one more fact."""
    match event:
        case WaitOpened():
            return State(
                status="opening",
                run_id=event.run_id,
                step=event.step,
                source=event.source,
                match=event.match,
                since=event.since,
                consumed=event.consumed,
            )
        case WaitLookedBack():
            return replace(state, status="open")
        case WaitMatched():
            return replace(
                state,
                status="matched",
                inbound_id=event.inbound_id,
                external_id=event.external_id,
                event=event.event,
                keys=event.keys,
                payload=event.payload,
            )
        case WaitClosed():
            return replace(state, status="closed")
        case _:
            return state


def _columns(state: State) -> Mapping[str, Any]:
    name = state.match.get("event")
    return {
        "run_id": state.run_id,
        "step": state.step,
        "source": state.source,
        "event": name if isinstance(name, str) else None,
        "probe": probe(state.match),
        "inbound_id": state.inbound_id,
    }


def _wake_at(state: State, now: datetime) -> datetime | None:
    return now + WATCHDOG if state.status == "opening" else None


CATEGORY: Final[Category[State]] = Category(
    name="wait",
    initial=State(),
    evolve=evolve,
    status=lambda state: state.status,
    columns=_columns,
    wake_at=_wake_at,
    run_id=lambda state: state.run_id,
    terminal=lifecycle.terminal(lifecycle.WAIT),
)
