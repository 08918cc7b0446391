"""One event of a source: recorded once, then routed to the runs that wait for it and to those that it starts.

Recording and routing are two appends: the waits of runs are looked for only once the event is recorded for all to see
(`libs.domain.wait` says why). What a person has done with an event later is told by its stream as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, assert_never
from uuid import UUID

from contracts.base import Actor, BlobRef, Event, Frozen, JsonObject, Sha256
from contracts.errors import Rejected
from contracts.events.inbound import (
    InboundBodyDiffered,
    InboundDelivered,
    InboundReceived,
    InboundReplayed,
    InboundRouted,
    ResumedRun,
    SkippedTrigger,
    StartedRun,
)
from contracts.events.run import RunCreated, Trigger, UserRef
from libs.domain import lifecycle
from libs.domain.core import NOTHING, Birth, Category, Decided, facts, no_run

WATCHDOG: Final = timedelta(seconds=30)
"""A recorded event that is not routed is looked at this often at the latest: who recorded it may have died."""

BODIES_MAX: Final = 20
"""Different bodies of one external id that are noted. A source that sends more of them needs no more evidence."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What followed from an event when a person asked for it."""

    started: tuple[StartedRun, ...] = ()
    skipped: tuple[SkippedTrigger, ...] = ()
    resumed: tuple[ResumedRun, ...] = ()
    unmatched: str | None = None


@dataclass(frozen=True, slots=True)
class State:
    """Where an event stands. `started`, `skipped` and `resumed` are of its first routing.

    `answered` holds what followed from each command of a person, by its id; `runs` are all that the event ever started,
    and `unmatched` says why nothing ever followed from it.
    """

    status: str = "absent"
    source: str = ""
    external_id: str = ""
    event: str = ""
    keys: JsonObject = field(default_factory=dict)
    payload: BlobRef | None = None
    received_at: datetime | None = None
    body_sha256: str = ""
    other_bodies: frozenset[str] = frozenset()
    started: tuple[StartedRun, ...] = ()
    skipped: tuple[SkippedTrigger, ...] = ()
    resumed: tuple[ResumedRun, ...] = ()
    answered: Mapping[UUID, Outcome] = field(default_factory=dict)
    runs: frozenset[UUID] = frozenset()
    unmatched: str | None = None


class Receive(Frozen):
    """Record a delivery, before anything follows from it."""

    source: str
    external_id: str
    event: str
    keys: JsonObject
    payload: BlobRef
    body_sha256: Sha256


class Start(Frozen):
    """A run that the event starts: of this version, for this owner, with the event's keys as its context."""

    run_id: UUID
    definition_id: str
    hash: Sha256
    bundle: BlobRef
    initiated_by: UserRef
    project_id: str | None


class Routing(Frozen):
    """What follows from an event by what is declared and waits now. `why` says it where nothing does."""

    inbound_id: UUID
    starts: tuple[Start, ...]
    skipped: tuple[SkippedTrigger, ...]
    resumed: tuple[ResumedRun, ...]
    why: str


class Route(Frozen):
    """Record what followed from the event, and give birth to its runs."""

    routing: Routing


class Replay(Frozen):
    """The same again, because a person asks for it. What it started before is not started twice."""

    routing: Routing
    command_id: UUID
    by: Actor


class Delivered(Frozen):
    """A person handed the event to this wait, which took it."""

    command_id: UUID
    by: Actor
    resumed: ResumedRun


class NoteBody(Frozen):
    """Another delivery had the same external id and this body."""

    body_sha256: Sha256


class Look(Frozen):
    """Nothing to say: only moves a wake that has passed."""


Command = Receive | Route | Replay | Delivered | NoteBody | Look


def trigger_key(source: str, external_id: str) -> str:
    """What makes an event-started run unique for its definition."""
    return f"{source}:{external_id}"


def decide(command: Command, state: State, now: datetime) -> Decided:
    """Return the facts that follow from a command; nothing when they are already true.

    Raises:
        contracts.errors.Rejected: ``event.not_found`` (404); ``event.not_routed`` (409) for a replay of what is still
            being routed the first time.
    """
    if not isinstance(command, Receive | Look) and state.status == "absent":
        raise Rejected("event.not_found", "there is no such event", status=404)
    match command:
        case Receive():
            return _receive(command, state, now)
        case Route(routing=routing):
            if state.status != "received":
                return NOTHING
            routed = InboundRouted(at=now, **_followed(routing, state))
            return Decided(events=(routed,), births=_births(routing, state, now))
        case Replay(routing=routing):
            return _replay(command, routing, state, now)
        case Delivered(resumed=resumed):
            if command.command_id in state.answered:
                return NOTHING
            return facts(
                InboundDelivered(
                    at=now,
                    by=command.by,
                    command_id=command.command_id,
                    run_id=resumed.run_id,
                    step=resumed.step,
                    wait_id=resumed.wait_id,
                )
            )
        case NoteBody(body_sha256=sha256):
            known = sha256 == state.body_sha256 or sha256 in state.other_bodies
            if known or len(state.other_bodies) >= BODIES_MAX:
                return NOTHING
            return facts(InboundBodyDiffered(at=now, body_sha256=sha256))
        case Look():
            return NOTHING
        case _:
            assert_never(command)


def _receive(command: Receive, state: State, now: datetime) -> Decided:
    if state.status != "absent":
        return NOTHING
    return facts(
        InboundReceived(
            at=now,
            source=command.source,
            external_id=command.external_id,
            event=command.event,
            keys=command.keys,
            payload=command.payload,
            body_sha256=command.body_sha256,
        )
    )


def _replay(command: Replay, routing: Routing, state: State, now: datetime) -> Decided:
    if command.command_id in state.answered:
        return NOTHING
    if state.status != "routed":
        raise Rejected("event.not_routed", "the event is still being routed; ask again in a moment", status=409)
    replayed = InboundReplayed(at=now, by=command.by, command_id=command.command_id, **_followed(routing, state))
    return Decided(events=(replayed,), births=_births(routing, state, now))


def _followed(routing: Routing, state: State) -> dict[str, Any]:
    """What a routing adds up to. A run that the event started before is told as skipped."""
    before = tuple(
        SkippedTrigger(definition_id=start.definition_id, reason=f"the event started run {start.run_id} before")
        for start in routing.starts
        if start.run_id in state.runs
    )
    started = tuple(
        StartedRun(definition_id=start.definition_id, run_id=start.run_id)
        for start in routing.starts
        if start.run_id not in state.runs
    )
    return {
        "started": started,
        "skipped": (*routing.skipped, *before),
        "resumed": routing.resumed,
        "unmatched": None if started or routing.resumed else routing.why,
    }


def _births(routing: Routing, state: State, now: datetime) -> tuple[Birth, ...]:
    return tuple(
        Birth("run", start.run_id, _created(start, routing, state, now))
        for start in routing.starts
        if start.run_id not in state.runs
    )


def _created(start: Start, routing: Routing, state: State, now: datetime) -> RunCreated:
    return RunCreated(
        at=now,
        definition_id=start.definition_id,
        hash=start.hash,
        bundle=start.bundle,
        context=state.keys,
        initiated_by=start.initiated_by,
        trigger=Trigger(
            kind="event",
            key=trigger_key(state.source, state.external_id),
            source=state.source,
            inbound_id=routing.inbound_id,
        ),
        project_id=start.project_id,
    )


def evolve(state: State, event: Event) -> State:
    """The state after a fact. Total: what it does not know changes nothing."""
    match event:
        case InboundReceived():
            return State(
                status="received",
                source=event.source,
                external_id=event.external_id,
                event=event.event,
                keys=event.keys,
                payload=event.payload,
                received_at=event.at,
                body_sha256=event.body_sha256,
            )
        case InboundRouted():
            return replace(
                state,
                status="routed",
                started=event.started,
                skipped=event.skipped,
                resumed=event.resumed,
                runs=_runs(state, event.started),
                unmatched=event.unmatched,
            )
        case InboundReplayed():
            outcome = Outcome(event.started, event.skipped, event.resumed, event.unmatched)
            answered = {**state.answered, event.command_id: outcome}
            unmatched = None if state.unmatched is None else event.unmatched
            return replace(state, answered=answered, runs=_runs(state, event.started), unmatched=unmatched)
        case InboundDelivered():
            resumed = ResumedRun(run_id=event.run_id, step=event.step, wait_id=event.wait_id)
            answered = {**state.answered, event.command_id: Outcome(resumed=(resumed,))}
            return replace(state, answered=answered, unmatched=None)
        case InboundBodyDiffered():
            return replace(state, other_bodies=state.other_bodies | {event.body_sha256})
        case _:
            return state


def _runs(state: State, started: tuple[StartedRun, ...]) -> frozenset[UUID]:
    return state.runs.union(each.run_id for each in started)


def _columns(state: State) -> Mapping[str, Any]:
    return {
        "source": state.source,
        "external_id": state.external_id,
        "event": state.event,
        "received_at": state.received_at,
        "body_sha256": state.body_sha256,
        "unmatched": state.unmatched,
    }


def _wake_at(state: State, now: datetime) -> datetime | None:
    return now + WATCHDOG if state.status == "received" else None


CATEGORY: Final[Category[State]] = Category(
    name="inbound",
    initial=State(),
    evolve=evolve,
    status=lambda state: state.status,
    columns=_columns,
    wake_at=_wake_at,
    run_id=no_run,
    terminal=lifecycle.terminal(lifecycle.INBOUND),
)
