"""How a person's answer ends a run, and what must not go on then."""

from typing import Literal

from contracts.events import run as e
from libs.domain.decision import State
from libs.domain.run.state import UNDER_WAY
from libs.domain.run.walk import Walk


def stop(walk: Walk, key: str, outcome: Literal["reject", "cancel"], child: State) -> None:
    """End the run at a step, as an answer to it says: rejected, or cancelled."""
    message = said(key, child)
    walk.emit(
        e.RunStepFailed(at=walk.now, step=key, failure_class="default", outcome=outcome, message=message),
    )
    if outcome == "cancel":
        walk.emit(e.RunCancelled(at=walk.now, reason=message, by=child.by))
        return
    cancel_others(walk, key.partition(".")[0], message)
    walk.emit(e.RunCompleted(at=walk.now, outcome="rejected"))


def cancel_others(walk: Walk, key: str, reason: str) -> None:
    """Stop the branches or items of a step that are still under way: nobody waits for them any more."""
    for name, record in walk.state.below(key).items():
        if record.status in UNDER_WAY:
            attempt_id = record.open_id if record.status == "queued" else None
            walk.emit(e.RunStepCancelled(at=walk.now, step=name, attempt_id=attempt_id, reason=reason))


def said(key: str, child: State) -> str:
    """What was answered, in words for the record. Who did and what they wrote stands in the decision alone, sealed."""
    return f"the run was cancelled at {key}" if child.outcome == "cancel" else f"{key} was answered {child.outcome}"
