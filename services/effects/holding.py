"""Says what holds calls back, so that a queue that does not move is no riddle: a gauge, and a line when it begins."""

from collections import Counter
from collections.abc import Mapping
from typing import Final, get_args

from libs.telemetry.logs import get_logger
from libs.telemetry.metrics import EFFECTS_WAITING
from services.effects.gates import HeldBy, Server

_TOLD: Final = frozenset({"breaker", "rate"})
"""What is worth a line: that a server has its calls under way is how it should be."""

_log = get_logger("effects.holding")


class Holding:
    """What this process has said of its queues."""

    def __init__(self) -> None:
        self._told: dict[Server, HeldBy] = {}

    def note(self, held: Mapping[Server, tuple[HeldBy, int]]) -> None:
        """Show what waits now, and by what it is held back; a line for each server of which that is new."""
        waiting: Counter[HeldBy] = Counter()
        for server, (held_by, count) in held.items():
            waiting[held_by] += count
            if held_by in _TOLD and self._told.get(server) != held_by:
                tell = _log.warning if held_by == "breaker" else _log.info
                tell("calls held back", system=server[1], held_by=held_by, effects=count)
                self._told[server] = held_by
        for held_by in get_args(HeldBy):
            EFFECTS_WAITING.labels(held_by).set(waiting[held_by])
        # A queue that is empty has moved on: held back once more, it is said once more.
        self._told = {server: held_by for server, held_by in self._told.items() if server in held}
