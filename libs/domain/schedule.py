"""One line of a definition's schedules: which slot is next, and what became of those before."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from contracts.base import Event
from contracts.events import schedule as e
from libs.domain import lifecycle
from libs.domain.core import Category, never, no_run


@dataclass(frozen=True, slots=True)
class State:
    """`handled_until` is the moment up to which every slot was fired or skipped; `last_run` is the run fired last."""

    status: str = "absent"
    definition_id: str = ""
    cron: str | None = None
    every_seconds: int | None = None
    timezone: str = "UTC"
    handled_until: datetime | None = None
    last_run: UUID | None = None


def evolve(state: State, event: Event) -> State:
    """The state after one more fact."""
    match event:
        case e.ScheduleDeclared():
            return State(
                status="active",
                definition_id=event.definition_id,
                cron=event.cron,
                every_seconds=event.every_seconds,
                timezone=event.timezone,
                handled_until=event.at,
                last_run=state.last_run,
            )
        case e.ScheduleFired():
            return replace(state, handled_until=event.due_at, last_run=event.run_id)
        case e.ScheduleSkipped():
            return replace(state, handled_until=event.due_at)
        case e.SchedulePaused():
            return replace(state, status="paused")
        case e.ScheduleResumed():
            return replace(state, status="active", handled_until=event.at)
        case e.ScheduleRetired():
            return replace(state, status="retired")
        case _:
            return state


def _columns(state: State) -> Mapping[str, Any]:
    return {
        "definition_id": state.definition_id,
        "line": state.cron if state.cron is not None else f"every {state.every_seconds} s",
        "timezone": state.timezone,
        "next_at": None,
        "last_run": state.last_run,
    }


CATEGORY: Final[Category[State]] = Category(
    name="schedule",
    initial=State(),
    evolve=evolve,
    status=lambda state: state.status,
    columns=_columns,
    wake_at=never,
    run_id=no_run,
    terminal=lifecycle.terminal(lifecycle.SCHEDULE),
)
