"""One wait of a run on an event: opened by the run, matched by at most one event, closed when nobody waits any more.

Opening and looking back are two statements, as are storing an event and looking for waits, so whichever of the two is
committed last sees the other. The gate on this stream lets one of them win.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from contracts.base import BlobRef, Event, JsonObject
from contracts.events.wait import WaitClosed, WaitLookedBack, WaitMatched, WaitOpened
from libs.domain import lifecycle
from libs.domain.core import Category

WATCHDOG: Final = timedelta(seconds=30)
"""An opening wait is looked at this often at the latest, in case the message that tells of it was lost."""


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
