"""What follows from a command to a decision, and what of it stands in its head row."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from contracts.base import Event
from contracts.events.decision import DecisionEscalated, DecisionReminded, DecisionWithdrawn
from libs.domain import lifecycle
from libs.domain.core import NOTHING, Category, Decided, Guard, facts
from libs.domain.decision.answering import answer, reassign
from libs.domain.decision.commands import Answer, Command, Look, Reassign, Seating, Withdraw
from libs.domain.decision.evolve import evolve
from libs.domain.decision.seating import needs_seats, seat, seated
from libs.domain.decision.state import State

SEATING_WATCHDOG: Final = timedelta(seconds=30)
"""When the voters of a quorum are named at the latest, should every message about it have been lost."""


def decide(command: Command, state: State, now: datetime) -> Decided:
    """Return what follows from a command; nothing when it is already true.

    Raises:
        contracts.errors.Rejected: ``decision.not_found`` (404) when it is absent or its run is not the principal's to
            see; ``decision.not_yours`` (403) without the role, ``decision.barred`` (403) where four eyes forbid it;
            409: ``decision.answered`` with who, when and outcome, ``decision.voted`` with who and when,
            ``decision.stale`` with the digest of what is shown now, ``decision.withdrawn``, ``decision.timed_out``,
            ``decision.not_reassigned``; 422: ``decision.outcome``, ``decision.revision``, ``decision.answer``.
    """
    match command:
        case Answer():
            return answer(command, state, now)
        case Reassign():
            return reassign(command, state, now)
        case Seating():
            return _guarded(seat(command, state, now), state)
        case Withdraw():
            if state.status != "open" or state.run_id is None:
                return NOTHING
            # The message may be older than a retry that opened the run again, with this decision in it.
            guards = (Guard("run", state.run_id, lifecycle.RUN_OVER),) if command.run_over else ()
            return facts(DecisionWithdrawn(at=now, reason=command.reason), guards=guards)
        case Look():
            return _look(command, state, now)
        case _:
            assert_never(command)


def _guarded(events: tuple[Event, ...], state: State) -> Decided:
    """What follows only while the run is open."""
    if not events or state.run_id is None:
        return NOTHING
    return facts(*events, guards=(Guard("run", state.run_id, lifecycle.RUN_OPEN),))


def _next_at(state: State) -> datetime | None:
    """When a decision that nobody answers is reminded, then escalated. Late reminders leave the whole second window."""
    if state.status != "open":
        return None
    if state.reminded_at is None:
        return state.due_at
    if state.escalate_to is not None and state.escalated_to is None:
        return state.reminded_at + state.window
    return None


def _look(command: Look, state: State, now: datetime) -> Decided:
    if state.status != "open":
        return NOTHING
    events: tuple[Event, ...] = seated(state, command.seats, now)[0] if command.seats is not None else ()
    at = _next_at(state)
    if at is not None and now >= at:
        if state.reminded_at is None:
            events = (*events, DecisionReminded(at=now))
        else:
            assert state.escalate_to is not None, "only what names a second role is escalated"
            events = (*events, DecisionEscalated(at=now, role=state.escalate_to, binding=state.escalate_binding))
    return _guarded(events, state)


def _wake_at(state: State, now: datetime) -> datetime | None:
    """The next of its moments. Past `until` the run has gone on without it, and it is withdrawn."""
    if state.status != "open":
        return None
    moments = [at for at in (_next_at(state), state.until) if at is not None]
    if needs_seats(state):
        moments.append(now + SEATING_WATCHDOG)
    return min(moments, default=None)


def _columns(state: State) -> Mapping[str, Any]:
    return {
        "run_id": state.run_id,
        "step": state.step,
        "role": state.role,
        "outcome": state.outcome,
        "opened_at": state.opened_at,
        "answered_at": state.answered_at,
        "definition_id": state.definition_id,
        "project_id": state.project_id,
        "initiator": state.initiated_by.id if state.initiated_by else None,
        "due_at": state.due_at,
        "escalated_to": state.escalated_to,
    }


CATEGORY: Final[Category[State]] = Category(
    name="decision",
    initial=State(),
    evolve=evolve,
    status=lambda state: state.status,
    columns=_columns,
    wake_at=_wake_at,
    run_id=lambda state: state.run_id,
    terminal=lifecycle.terminal(lifecycle.DECISION),
)
