"""One webhook delivery: recorded once, with the runs that it starts born in the same statement."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from contracts.base import BlobRef, Event, Frozen, JsonObject, Sha256
from contracts.events.inbound import InboundReceived, InboundRouted, SkippedTrigger, StartedRun
from contracts.events.run import RunCreated, Trigger, UserRef
from libs.domain import lifecycle
from libs.domain.core import NOTHING, Birth, Category, Decided, never, no_run


@dataclass(frozen=True, slots=True)
class State:
    """Where a delivery stands, and what it started."""

    status: str = "absent"
    source: str = ""
    external_id: str = ""
    event: str = ""
    received_at: datetime | None = None
    body_sha256: str = ""
    unmatched: str | None = None
    started: tuple[StartedRun, ...] = ()
    skipped: tuple[SkippedTrigger, ...] = ()


class Start(Frozen):
    """A run that the delivery starts: of this version, for this owner, with the event's keys as its context."""

    run_id: UUID
    definition_id: str
    hash: Sha256
    bundle: BlobRef
    initiated_by: UserRef
    project_id: str | None


class Record(Frozen):
    """Record a delivery with everything that follows from it."""

    inbound_id: UUID
    source: str
    external_id: str
    event: str
    keys: JsonObject
    payload: BlobRef
    body_sha256: Sha256
    starts: tuple[Start, ...]
    skipped: tuple[SkippedTrigger, ...]


def trigger_key(source: str, external_id: str) -> str:
    """What makes an event-started run unique for its definition."""
    return f"{source}:{external_id}"


def decide(command: Record, state: State, now: datetime) -> Decided:
    """Return the two facts of a delivery and the births of its runs; nothing when it was recorded before."""
    if state.status != "absent":
        return NOTHING
    received = InboundReceived(
        at=now,
        source=command.source,
        external_id=command.external_id,
        event=command.event,
        keys=command.keys,
        payload=command.payload,
        body_sha256=command.body_sha256,
    )
    started = tuple(StartedRun(definition_id=s.definition_id, run_id=s.run_id) for s in command.starts)
    return Decided(
        events=(received, InboundRouted(at=now, started=started, skipped=command.skipped)),
        births=tuple(Birth("run", start.run_id, _created(start, command, now)) for start in command.starts),
    )


def _created(start: Start, command: Record, now: datetime) -> RunCreated:
    return RunCreated(
        at=now,
        definition_id=start.definition_id,
        hash=start.hash,
        bundle=start.bundle,
        context=command.keys,
        initiated_by=start.initiated_by,
        trigger=Trigger(
            kind="event",
            key=trigger_key(command.source, command.external_id),
            source=command.source,
            inbound_id=command.inbound_id,
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
                received_at=event.at,
                body_sha256=event.body_sha256,
            )
        case InboundRouted():
            return replace(
                state, status="routed", started=event.started, skipped=event.skipped, unmatched=event.unmatched
            )
        case _:
            return state


def _columns(state: State) -> Mapping[str, Any]:
    return {
        "source": state.source,
        "external_id": state.external_id,
        "event": state.event,
        "received_at": state.received_at,
        "body_sha256": state.body_sha256,
        "unmatched": state.unmatched,
    }


CATEGORY: Final[Category[State]] = Category(
    name="inbound",
    initial=State(),
    evolve=evolve,
    status=lambda state: state.status,
    columns=_columns,
    wake_at=never,
    run_id=no_run,
    terminal=lifecycle.terminal(lifecycle.INBOUND),
)
