"""Event steps: wait for an inbound event, take it as the step's output."""

from typing import Final

from contracts import ids
from contracts.base import JsonObject, JsonValue
from contracts.errors import Rejected
from contracts.events import run as e
from contracts.events.wait import WaitOpened
from libs.domain import lifecycle, wait
from libs.domain.core import Birth, Guard
from libs.domain.run.programs.definition.failures import fail
from libs.domain.run.walk import Walk
from libs.language.model import EventStep
from libs.language.paths import MISSING, resolve

_CONTEXT: Final = "$context."

UNMATCHED: Final = frozenset(lifecycle.WAIT) - {"absent", "matched"}
"""States of a wait whose step may time out: the event may come since the wait was read."""


def event(walk: Walk, step: EventStep, key: str) -> None:
    """Open a wait; take the event that it was matched with, or fail when none came in time."""
    if walk.begins(key):
        _open(walk, step, key)
        return
    record = walk.state.step(key)
    child = walk.child(record.open_id)
    if record.status != "waiting" or record.open_id is None:
        return
    if isinstance(child, wait.State) and child.inbound_id is not None and child.payload is not None:
        walk.emit(e.RunEventTaken(at=walk.now, step=key, wait_id=record.open_id, inbound_id=child.inbound_id))
        output = {
            "event": child.event,
            "external_id": child.external_id,
            "keys": child.keys,
            "payload": walk.artefact(child.payload),
        }
        walk.emit(e.RunStepSucceeded(at=walk.now, step=key, output=walk.keep(output)))
    elif walk.overdue(key):
        walk.guards.append(Guard("wait", record.open_id, UNMATCHED))
        fail(walk, key, "timeout", f"no event of {step.source} for {key} came within its timeout of {step.timeout}")


def _open(walk: Walk, step: EventStep, key: str) -> None:
    try:
        match = {name: _resolved(walk, value) for name, value in step.match.items()}
    except Rejected as error:
        fail(walk, key, "missing_data", f"match of {key} reads {error.message}")
        return
    record, created_at = walk.state.step(key), walk.state.created_at
    assert created_at is not None
    wait_id = ids.wait(walk.run_id, key, record.round, record.attempt + 1)
    walk.emit(
        e.RunEventAwaited(
            at=walk.now,
            step=key,
            round=record.round,
            wait_id=wait_id,
            source=step.source,
            match=match,
            until=walk.now + step.timeout if step.timeout else None,
        )
    )
    walk.births.append(Birth("wait", wait_id, _opened(walk, step, key, match)))


def _opened(walk: Walk, step: EventStep, key: str, match: JsonObject) -> WaitOpened:
    assert walk.state.created_at is not None
    return WaitOpened(
        at=walk.now,
        run_id=walk.run_id,
        step=key,
        round=walk.state.step(key).round,
        source=step.source,
        match=match,
        since=walk.state.created_at,
        consumed=walk.state.consumed,
    )


def _resolved(walk: Walk, value: JsonValue) -> JsonValue:
    """A value of `match` with what it reads from the run's context.

    Raises:
        contracts.errors.Rejected: the context has no value there; the message begins with the path.
    """
    if isinstance(value, list):
        return [_resolved(walk, item) for item in value]
    if not isinstance(value, str) or not value.startswith(_CONTEXT):
        return value
    found = resolve(value.removeprefix(_CONTEXT), walk.context)
    if found is None or found is MISSING:
        raise Rejected("match.unset", f"{value.removeprefix('$')}, which has no value")
    return found
