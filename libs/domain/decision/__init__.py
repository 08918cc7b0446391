"""A human task: opened with a step, answered once by who may, or withdrawn with its step or its run.

`state` and `evolve` fold its facts; `capacities` says who may answer and in whose place, `voting` when a quorum is
reached; `decide` judges commands, with `answering` and `seating`. While nobody answers it is reminded once, and given
to a second role after that; each is a fact, so that whoever tells people of it tells them once.
"""

from libs.domain.decision.capacities import Capacity, bar_of, capacities, may_answer, roles_held, roles_of
from libs.domain.decision.commands import Answer, Command, Look, Reassign, Seating, Withdraw
from libs.domain.decision.decide import CATEGORY, decide
from libs.domain.decision.evolve import evolve
from libs.domain.decision.seating import needs_seats
from libs.domain.decision.state import Ballot, State
from libs.domain.decision.voting import Tally, tally

__all__ = [
    "CATEGORY",
    "Answer",
    "Ballot",
    "Capacity",
    "Command",
    "Look",
    "Reassign",
    "Seating",
    "State",
    "Tally",
    "Withdraw",
    "bar_of",
    "capacities",
    "decide",
    "evolve",
    "may_answer",
    "needs_seats",
    "roles_held",
    "roles_of",
    "tally",
]
