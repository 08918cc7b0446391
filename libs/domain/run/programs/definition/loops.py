"""Sending a run back."""

from typing import Literal

from contracts.events import run as e
from libs.domain.run.walk import Walk


def loop(
    walk: Walk,
    *,
    from_step: str,
    to_step: str,
    reason: Literal["gate", "request_changes", "timeout"],
    feedback: e.Feedback,
) -> None:
    """Begin a new round of every step from `to_step` to `from_step`."""
    keys = [step.key for step in walk.steps]
    between = set(keys[keys.index(to_step) : keys.index(from_step) + 1])
    walk.emit(
        e.RunLooped(
            at=walk.now,
            from_step=from_step,
            to_step=to_step,
            reset=tuple(key for key in walk.state.steps if key.partition(".")[0] in between),
            count=walk.state.step(from_step).loops + 1,
            reason=reason,
            feedback=feedback,
        )
    )
