"""A run: one instance of one version of a definition, durable and pinned.

`state` folds its facts, `decide` judges commands, and `walk` with `steps` plans what follows, to quiescence.
"""

from libs.domain.run.commands import Advance, Cancel, Create, Resume, RetryStep, RunCommand, Suspend
from libs.domain.run.decide import decide
from libs.domain.run.state import CATEGORY, State, StepRecord, evolve

__all__ = [
    "CATEGORY",
    "Advance",
    "Cancel",
    "Create",
    "Resume",
    "RetryStep",
    "RunCommand",
    "State",
    "StepRecord",
    "Suspend",
    "decide",
    "evolve",
]
