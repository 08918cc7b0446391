"""What a run waits for: read off its state, with the decisions, the waits and the concurrency key that it names."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from contracts.base import Principal
from contracts.events.run import RunEventAwaited
from libs.domain import admission, decision, run
from libs.domain.lifecycle import RUN_OPEN
from libs.domain.run.operating import may_complete
from libs.eventstore.port import Recorded
from minutebook.models import (
    WaitingFor,
    WaitingForDecision,
    WaitingForEvent,
    WaitingForPerson,
    WaitingForTime,
    WaitingForTurn,
)


def waiting_for(
    caller: Principal,
    run_id: UUID,
    history: Iterable[Recorded],
    state: run.State,
    decisions: Mapping[UUID, decision.State],
    key: admission.State | None,
) -> tuple[WaitingFor, ...]:
    """Everything that an open run waits for, in the order in which its steps were reached."""
    if state.status not in RUN_OPEN:
        return ()
    if state.held and state.admission is not None:
        return (_turn(run_id, state, key),)
    awaited = {fact.event.wait_id: fact.event for fact in history if isinstance(fact.event, RunEventAwaited)}
    found = [_of_step(caller, state, step, record, decisions, awaited) for step, record in state.steps.items()]
    return tuple(waiting for waiting in found if waiting is not None)


def _of_step(
    caller: Principal,
    state: run.State,
    step: str,
    record: run.StepRecord,
    decisions: Mapping[UUID, decision.State],
    awaited: Mapping[UUID, RunEventAwaited],
) -> WaitingFor | None:
    """What a step waits for; None where it works, or its answer is there already."""
    match record.status:
        case "delayed" | "retrying" if record.not_before is not None:
            return WaitingForTime(step=step, until=record.not_before)
        case "waiting" if record.open_id is not None and record.open_id in decisions:
            return _decision(caller, record.open_id, decisions[record.open_id])
        case "waiting" if record.open_id is not None and record.open_id in awaited:
            wait = awaited[record.open_id]
            return WaitingForEvent(
                step=step,
                wait_id=wait.wait_id,
                source=wait.source,
                match=wait.match,
                opened_at=wait.at,
                until=wait.until,
            )
        case "waiting" if record.waits_on == "manual" and record.since is not None:
            return WaitingForPerson(
                step=step,
                role=record.role,
                opened_at=record.since,
                until=record.until,
                may_complete=may_complete(caller, state, record),
            )
        case _:
            return None


def _decision(caller: Principal, decision_id: UUID, state: decision.State) -> WaitingForDecision | None:
    if state.status != "open" or state.opened_at is None:
        return None
    return WaitingForDecision(
        step=state.step,
        decision_id=decision_id,
        title=state.title,
        role=state.role,
        outcomes=state.outcomes,
        opened_at=state.opened_at,
        due_at=state.due_at,
        escalation=state.kind == "escalation",
        may_answer=decision.may_answer(caller, state),
    )


def _turn(run_id: UUID, state: run.State, key: admission.State | None) -> WaitingForTurn:
    assert state.admission is not None, "a held run has asked for its turn"
    place = key.place(run_id) if key is not None else None
    return WaitingForTurn(
        key=state.admission.key,
        limit=state.admission.limit,
        held_by=key.holders if key is not None else (),
        ahead=0 if place is None else place - 1,
    )
