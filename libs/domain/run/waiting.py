"""Whether a run still waits for what it once asked of a person or an event."""

from uuid import UUID

from libs.domain.run.state import State


def waits_for(state: State, step: str, asked: UUID) -> bool:
    """Whether the step stands on this decision or this wait. Once it does not, it never will again."""
    record = state.step(step)
    return record.status == "waiting" and record.open_id == asked
