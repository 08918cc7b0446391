"""What of a run stands in its head row, and when it must be looked at again."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from contracts.base import JsonObject
from libs.domain.core import Category, no_run
from libs.domain.lifecycle import RUN, RUN_OPEN, terminal
from libs.domain.run.evolve import evolve
from libs.domain.run.state import State, StepRecord

WATCHDOG: Final = timedelta(seconds=60)
"""A running run is looked at this often at the latest, in case every message about it was lost."""

SEARCH_TERMS_MAX: Final = 20
SEARCH_TERM_CHARS_MAX: Final = 200


def search_terms(context: JsonObject) -> list[str]:
    """What a run is found by: `key=value` of the plain values at the top of its context, the first few of them."""
    terms = [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in context.items()
        if isinstance(value, str | int | float | bool)
    ]
    return sorted(term for term in terms if len(term) <= SEARCH_TERM_CHARS_MAX)[:SEARCH_TERMS_MAX]


def open_steps(state: State) -> Iterator[StepRecord]:
    """The steps of an open run that wait on a person or an event."""
    if state.status in RUN_OPEN:
        yield from (record for record in state.steps.values() if record.status == "waiting")


def _columns(state: State) -> Mapping[str, Any]:
    return {
        "definition_id": state.definition_id,
        "hash": state.hash,
        "initiator": state.initiated_by.id if state.initiated_by else None,
        "project_id": state.project_id,
        "stage": state.stage,
        "outcome": state.outcome,
        "reason": state.reason,
        "created_at": state.created_at,
        "finished_at": state.finished_at,
        "cost_microdollars": state.cost_microdollars,
        "variant": state.variant,
        "parent": state.parent,
        "search": search_terms(state.context),
        "tasks": sum(record.waits_on == "manual" for record in open_steps(state)),
    }


def _wake_at(state: State, now: datetime) -> datetime | None:
    """A run that works is watched. One that waits is woken by the clock for what is due, and by nothing else.

    A held one is woken by nobody's clock: its turn is told, and told again after a lost bus.
    """
    match state.status:
        case "created":
            return None if state.held else now + WATCHDOG
        case "running":
            return min([now + WATCHDOG, *_due(state)])
        case "waiting_decision" | "waiting_event" | "waiting_timer":
            return min(_due(state), default=None)
        case _:
            return None


def _due(state: State) -> Iterator[datetime]:
    """The moments at which steps go on by themselves, or time out."""
    for record in state.steps.values():
        if record.status in {"retrying", "delayed"} and record.not_before is not None:
            yield record.not_before
        elif record.status == "waiting" and record.until is not None:
            yield record.until


CATEGORY: Final[Category[State]] = Category(
    name="run",
    initial=State(),
    evolve=evolve,
    status=lambda state: state.status,
    columns=_columns,
    wake_at=_wake_at,
    run_id=no_run,
    terminal=terminal(RUN),
)
