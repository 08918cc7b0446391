"""What goes wrong in one seed, and how often. Each seed draws its own mixture, so that rare pairs of faults meet."""

from dataclasses import dataclass
from random import Random
from typing import Final

NEMESES: Final = (
    "kill",
    "kill_everything",
    "power_cut",
    "freeze",
    "drain",
    "jump",
    "jump_back",
    "wipe_bus",
    "delete_durable",
    "database_away",
    "bus_away",
    "early_wakes",
)
"""Faults that come from outside, one at a time."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Chances per call or message, and the nemeses of this seed. `QUIET` is the end of all of it.

    `settled` says that doubts are settled while things break. Then the clock does not jump within a call, which is
    what verdicts rest on; in other seeds it does, and doubts are settled in the calm.
    """

    slow: float = 0.0
    stall: float = 0.0
    crash: float = 0.0
    refused_call: float = 0.0
    lost_reply: float = 0.0
    late_delivery: float = 0.0
    lost_ack: float = 0.0
    lost_message: float = 0.0
    shuffled: float = 0.0
    executor: float = 0.0
    target: float = 0.0
    settled: bool = False
    nemeses: tuple[str, ...] = ()
    nemesis_seconds: float = 60.0


QUIET: Final = Profile()


def draw(random: Random) -> Profile:
    """The mixture of one seed."""

    def chance(most: float) -> float:
        return 0.0 if random.random() < 0.35 else most * random.random() ** 2

    return Profile(
        slow=chance(0.1),
        stall=chance(0.02),
        crash=chance(0.006),
        refused_call=chance(0.05),
        lost_reply=chance(0.05),
        late_delivery=chance(0.3),
        lost_ack=chance(0.3),
        lost_message=chance(0.2),
        shuffled=chance(1.0),
        executor=chance(0.8),
        target=random.choice((0.0, 0.3, 0.8)),
        settled=random.random() < 0.6,
        nemeses=tuple(kind for kind in NEMESES if random.random() < 0.5),
        nemesis_seconds=random.choice((4.0, 10.0, 30.0)),
    )
