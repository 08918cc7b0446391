"""A run: one instance of one version of a definition, durable and pinned.

`state` folds its facts, `decide` judges commands, and `walk` with `steps` plans what follows, to quiescence.
"""

from libs.domain.run.commands import (
    NO_EVIDENCE,
    Advance,
    Cancel,
    Create,
    Evidence,
    Resume,
    RetryStep,
    RunCommand,
    Suspend,
)
from libs.domain.run.decide import decide
from libs.domain.run.state import CATEGORY, State, StepRecord, evolve

__all__ = [
    "CATEGORY",
    "NO_EVIDENCE",
    "Advance",
    "Cancel",
    "Create",
    "Evidence",
    "Resume",
    "RetryStep",
    "RunCommand",
    "State",
    "StepRecord",
    "Suspend",
    "decide",
    "evolve",
]
