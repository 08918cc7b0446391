"""Approvals that end: a write that comes later than its approval is good for has it asked for again."""

from datetime import datetime

from contracts.events import run as e
from libs.domain.run.walk import Walk
from libs.language.model import DecisionStep, WriteStep


def valid_until(walk: Walk, step: WriteStep) -> datetime | None:
    """When the approval that a write rests on goes stale; None for never."""
    decision, record = walk.step_of(step.requires_decision), walk.state.step(step.requires_decision)
    assert isinstance(decision, DecisionStep), "the loader refuses writes that rest on anything else"
    if decision.approval_valid_for is None or record.succeeded_at is None:
        return None
    return record.succeeded_at + decision.approval_valid_for


def is_stale(walk: Walk, step: WriteStep) -> bool:
    until = valid_until(walk, step)
    return until is not None and walk.now >= until


def is_asked_anew(walk: Walk, step: WriteStep) -> bool:
    """Whether the decision is open again, so that its writes wait."""
    return walk.state.step(step.requires_decision).status in {"pending", "delayed", "waiting"}


def ask_anew(walk: Walk, step: WriteStep, key: str) -> None:
    """Ask for the approval again, once nothing that rests on the old one is under way.

    Items that wait to be tried again wait for the new approval in place of their moment.
    """
    top = key.partition(".")[0]
    beside = {name: record for name, record in walk.state.below(top).items() if name != key}
    if any(record.status == "writing" for record in beside.values()):
        return
    until, approved_at = valid_until(walk, step), walk.state.step(step.requires_decision).succeeded_at
    assert until is not None, "an approval that never ends is never asked for again"
    assert approved_at is not None, "what ends has begun"
    message = f"the approval of {step.requires_decision} was good until {until.isoformat()}; it is asked for again"
    for name in (key, *(name for name, record in beside.items() if record.status == "retrying")):
        if walk.state.step(name).status in {"writing", "retrying"}:
            walk.emit(e.RunStepFailed(at=walk.now, step=name, failure_class="missing_data", message=message))
        walk.emit(
            e.RunApprovalExpired(
                at=walk.now,
                step=step.requires_decision,
                write=name,
                approved_at=approved_at,
                valid_until=until,
            )
        )
