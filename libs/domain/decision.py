"""A human task: opened with a step, answered once by a holder of its role, or withdrawn with its step or its run.

While nobody answers it is reminded once, and given to a second role after that; each is a fact, so that whoever tells
people of it tells them once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal, assert_never
from uuid import UUID

from contracts.base import Actor, BlobRef, Event, Frozen, Principal
from contracts.errors import Rejected
from contracts.events.decision import (
    DecisionAnswered,
    DecisionEscalated,
    DecisionOpened,
    DecisionReminded,
    DecisionWithdrawn,
)
from contracts.events.run import RoleBinding, UserRef
from libs.domain import lifecycle
from libs.domain.access import holds, sees_run
from libs.domain.core import NOTHING, Category, Decided, Guard, facts
from minutebook.models.states import DecisionOutcome

_UNBOUND: Final = RoleBinding()


@dataclass(frozen=True, slots=True)
class State:
    """Where a decision stands. What was opened is set in every status but `absent`."""

    status: str = "absent"
    run_id: UUID | None = None
    definition_id: str = ""
    step: str = ""
    title: str = ""
    round: int = 0
    role: str = ""
    binding: RoleBinding = _UNBOUND
    outcomes: tuple[DecisionOutcome, ...] = ()
    artifact_step: str | None = None
    artifact: BlobRef | None = None
    initiated_by: UserRef | None = None
    project_id: str | None = None
    opened_at: datetime | None = None
    outcome: DecisionOutcome | None = None
    by: Actor | None = None
    comment: str | None = None
    revised: BlobRef | None = None
    command_id: UUID | None = None
    answered_at: datetime | None = None
    withdrawn_because: str | None = None
    kind: Literal["decision", "escalation"] = "decision"
    due_at: datetime | None = None
    window: timedelta = timedelta(0)
    escalate_to: str | None = None
    escalate_binding: RoleBinding = _UNBOUND
    reminded_at: datetime | None = None
    escalated_to: str | None = None


class Answer(Frozen):
    """Answer as this principal. `blobs` hold the content of `revised` by digest.

    `revised` replaces the artefact on approval; with a request for changes whoever redoes it is shown it.
    """

    command_id: UUID
    outcome: DecisionOutcome
    comment: str | None
    revised: BlobRef | None
    blobs: dict[str, bytes]
    principal: Principal


class Withdraw(Frozen):
    """Nobody needs to answer any more. `run_over` holds only while the run is over."""

    reason: str
    run_over: bool


class Look(Frozen):
    """Say what its time has come for; moves a wake that has passed."""


Command = Answer | Withdraw | Look


def decide(command: Command, state: State, now: datetime) -> Decided:
    """Return what follows from a command; nothing when it is already true.

    Raises:
        Rejected: ``decision.not_found`` (404) when it is absent or its run is not the principal's to see;
            ``decision.not_yours`` (403) without the role; ``decision.answered`` (409) with who, when and outcome;
            ``decision.withdrawn`` (409); ``decision.outcome`` and ``decision.revision`` (422).
    """
    match command:
        case Answer():
            return _answer(command, state, now)
        case Withdraw():
            if state.status != "open" or state.run_id is None:
                return NOTHING
            # The message may be older than a retry that opened the run again, with this decision in it.
            guards = (Guard("run", state.run_id, lifecycle.RUN_OVER),) if command.run_over else ()
            return facts(DecisionWithdrawn(at=now, reason=command.reason), guards=guards)
        case Look():
            return _look(state, now)
        case _:
            assert_never(command)


def _next_at(state: State) -> datetime | None:
    """When a decision that nobody answers is reminded, then escalated. Late reminders leave the whole second window."""
    if state.status != "open":
        return None
    if state.reminded_at is None:
        return state.due_at
    if state.escalate_to is not None and state.escalated_to is None:
        return state.reminded_at + state.window
    return None


def _look(state: State, now: datetime) -> Decided:
    at = _next_at(state)
    if at is None or now < at or state.run_id is None:
        return NOTHING
    guards = (Guard("run", state.run_id, lifecycle.RUN_OPEN),)
    if state.reminded_at is None:
        return facts(DecisionReminded(at=now), guards=guards)
    assert state.escalate_to is not None, "only what names a second role is escalated"
    return facts(DecisionEscalated(at=now, role=state.escalate_to, binding=state.escalate_binding), guards=guards)


def _roles(state: State) -> Mapping[str, RoleBinding]:
    """The roles whose holders may answer now."""
    roles = {state.role: state.binding}
    if state.escalated_to is not None:
        roles[state.escalated_to] = state.escalate_binding
    return roles


def may_answer(principal: Principal, state: State) -> bool:
    """Whether the principal holds a role whose holders may answer now. That it is open is the caller's to see."""
    return any(holds(principal, binding, project_id=state.project_id) for binding in _roles(state).values())


def _answer(command: Answer, state: State, now: datetime) -> Decided:
    run_id, initiator = state.run_id, state.initiated_by
    if run_id is None or initiator is None or not sees_run(command.principal, initiator.id, state.project_id):
        raise Rejected("decision.not_found", "there is no such decision", status=404)
    if not may_answer(command.principal, state):
        roles = " or ".join(repr(role) for role in _roles(state))
        raise Rejected(
            "decision.not_yours",
            f"this decision is for the role {roles}, which {command.principal.name} does not hold",
            status=403,
            role=state.role,
        )
    if state.status == "answered":
        if state.command_id == command.command_id:
            return NOTHING
        raise _answered(state)
    if state.status == "withdrawn":
        raise Rejected("decision.withdrawn", f"the decision was withdrawn: {state.withdrawn_because}", status=409)
    if command.outcome not in state.outcomes:
        raise Rejected(
            "decision.outcome", f"{command.outcome!r} is not offered; answer one of {', '.join(state.outcomes)}"
        )
    if command.revised is not None:
        _check_revisable(command, state)
    answered = DecisionAnswered(
        at=now,
        command_id=command.command_id,
        outcome=command.outcome,
        by=command.principal.actor,
        comment=command.comment,
        artifact=state.artifact,
        revised=command.revised,
    )
    return facts(answered, guards=(Guard("run", run_id, lifecycle.RUN_ACTIVE),), blobs=command.blobs)


def _answered(state: State) -> Rejected:
    who = state.by.name if state.by else None
    when = state.answered_at.isoformat() if state.answered_at else None
    return Rejected(
        "decision.answered",
        f"{who} answered {state.outcome} at {when}; a decision is answered once",
        status=409,
        who=who,
        when=when,
        outcome=state.outcome,
    )


def _check_revisable(command: Answer, state: State) -> None:
    if command.outcome not in {"approve", "request_changes"}:
        message = "only an approval or a request for changes may carry a revised artefact; comment on it instead"
        raise Rejected("decision.revision", message)
    if state.artifact is None:
        raise Rejected("decision.revision", f"the decision {state.step!r} shows no artefact that could be revised")


def evolve(state: State, event: Event) -> State:
    """The state after a fact. Total: what it does not know changes nothing."""
    match event:
        case DecisionOpened():
            return State(
                status="open",
                run_id=event.run_id,
                definition_id=event.definition_id,
                step=event.step,
                title=event.title,
                round=event.round,
                role=event.role,
                binding=event.binding,
                outcomes=event.outcomes,
                artifact_step=event.artifact_step,
                artifact=event.artifact,
                initiated_by=event.initiated_by,
                project_id=event.project_id,
                opened_at=event.at,
                kind=event.kind,
                due_at=event.due_at,
                window=timedelta(seconds=event.due_seconds or 0.0),
                escalate_to=event.escalate_to,
                escalate_binding=event.escalate_binding or _UNBOUND,
            )
        case DecisionReminded():
            return replace(state, reminded_at=event.at)
        case DecisionEscalated():
            return replace(state, escalated_to=event.role, escalate_binding=event.binding)
        case DecisionAnswered():
            return replace(
                state,
                status="answered",
                outcome=event.outcome,
                by=event.by,
                comment=event.comment,
                revised=event.revised,
                command_id=event.command_id,
                answered_at=event.at,
            )
        case DecisionWithdrawn():
            return replace(state, status="withdrawn", withdrawn_because=event.reason)
        case _:
            return state


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
    wake_at=lambda state, _now: _next_at(state),
    run_id=lambda state: state.run_id,
    terminal=lifecycle.terminal(lifecycle.DECISION),
)
