"""Manual steps: a person completes them with an artefact; no model is called."""

from contracts.events import run as e
from libs.domain.run.programs.definition.failures import fail
from libs.domain.run.walk import Walk
from libs.language.model import ManualStep


def manual(walk: Walk, step: ManualStep, key: str) -> None:
    """Ask for the artefact. The person's own command completes the step; only its timeout is looked for here."""
    if walk.begins(key):
        walk.emit(
            e.RunManualOpened(
                at=walk.now,
                step=key,
                round=walk.state.step(key).round,
                role=step.role,
                binding=walk.definition.binding(step.role) if step.role else None,
                until=walk.now + step.timeout if step.timeout else None,
            )
        )
    elif walk.overdue(key):
        fail(walk, key, "timeout", f"nobody completed {key} within its timeout of {step.timeout}")
