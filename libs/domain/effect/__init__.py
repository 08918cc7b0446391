"""One write to the outside: declared with its step, pending before the call, then what became of it.

What cannot be known is in doubt until somebody's verdict or the target's own word settles it, and neither is taken
before the call is over everywhere: a call that is still under way would make a lie of it.
"""

from datetime import timedelta
from typing import Final

from libs.domain.effect.commands import (
    BackLink,
    Begin,
    Cancel,
    Command,
    Doubt,
    Expire,
    Fail,
    Finish,
    Look,
    Rearm,
    Rest,
    Settle,
)
from libs.domain.effect.decide import RESTORED, decide
from libs.domain.effect.settling import ABSENT_LOOKS, must_be_settleable
from libs.domain.effect.state import (
    BACK_LINK_AGAIN,
    CATEGORY,
    DECLARED_WATCHDOG,
    PROBE_AGAIN,
    UNANNOUNCED_OVER,
    State,
    evolve,
    is_over,
    over_no_earlier,
)

CALL_TIMEOUT_MAX: Final = timedelta(seconds=120)
"""No call takes longer, whatever its declaration asks for."""

__all__ = [
    "ABSENT_LOOKS",
    "BACK_LINK_AGAIN",
    "CALL_TIMEOUT_MAX",
    "CATEGORY",
    "DECLARED_WATCHDOG",
    "PROBE_AGAIN",
    "RESTORED",
    "UNANNOUNCED_OVER",
    "BackLink",
    "Begin",
    "Cancel",
    "Command",
    "Doubt",
    "Expire",
    "Fail",
    "Finish",
    "Look",
    "Rearm",
    "Rest",
    "Settle",
    "State",
    "decide",
    "evolve",
    "is_over",
    "must_be_settleable",
    "over_no_earlier",
]
