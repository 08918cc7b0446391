"""Who may work under one concurrency key of a definition, and who waits for it. One stream per key serialises them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from contracts.base import Event
from contracts.events import admission as e
from libs.domain import lifecycle
from libs.domain.core import Category, never, no_run


@dataclass(frozen=True, slots=True)
class State:
    """`holders` work, `queued` wait in the order in which they came."""

    status: str = "absent"
    definition_id: str = ""
    key: str = ""
    limit: int = 1
    holders: tuple[UUID, ...] = ()
    queued: tuple[UUID, ...] = ()


def evolve(state: State, event: Event) -> State:
    """The state after one more fact."""
    match event:
        case e.AdmissionGranted(run_id=run_id):
            opened = replace(state, definition_id=event.definition_id, key=event.key, limit=event.limit)
            return _settled(opened, (*_without(state.holders, run_id), run_id), _without(state.queued, run_id))
        case e.AdmissionQueued(run_id=run_id):
            opened = replace(state, definition_id=event.definition_id, key=event.key, limit=event.limit)
            return _settled(opened, state.holders, (*state.queued, run_id))
        case e.AdmissionSuperseded(run_id=run_id) | e.AdmissionReturned(run_id=run_id):
            return _settled(state, _without(state.holders, run_id), _without(state.queued, run_id))
        case _:
            return state


def _without(runs: tuple[UUID, ...], run_id: UUID) -> tuple[UUID, ...]:
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
