"""A run: one instance of one version of a definition, durable and pinned.

`state` and `evolve` fold its facts and `head` says what of them stands in its row; `decide` judges commands, with
`starting`, `forking` and `operating`; `walk` and `programs` plan what follows, to quiescence.
"""

from libs.domain.run.commands import (
    NO_EVIDENCE,
    STREAM_EVENTS_MAX,
    Advance,
    Cancel,
    Complete,
    Create,
    Evidence,
    Fork,
    Restart,
    Resume,
    RetryStep,
    RunCommand,
    Suspend,
)
from libs.domain.run.decide import decide
from libs.domain.run.evolve import evolve
from libs.domain.run.forking import point
from libs.domain.run.head import CATEGORY
from libs.domain.run.programs.definition import ITEMS_MAX
from libs.domain.run.starting import key_id_of
from libs.domain.run.state import State, StepRecord

__all__ = [
    "CATEGORY",
    "ITEMS_MAX",
    "NO_EVIDENCE",
    "STREAM_EVENTS_MAX",
    "Advance",
    "Cancel",
    "Complete",
    "Create",
    "Evidence",
    "Fork",
    "Restart",
    "Resume",
    "RetryStep",
    "RunCommand",
    "State",
    "StepRecord",
    "Suspend",
    "decide",
    "evolve",
    "key_id_of",
    "point",
]
