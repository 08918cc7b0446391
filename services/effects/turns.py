"""Who is called next: no more calls at a time than were set, and a slow server holds up no other."""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from libs.domain.effect import State
from services.effects.gates import Gates, HeldBy, Server

WAITING_MAX: Final = 10_000
"""Effects that wait here for a free call. Those beyond it come back by their wake."""


@dataclass(frozen=True, slots=True)
class Turn:
    """An effect that was declared when it was read, and the arm that its run asks for.

    `restored` is what `libs.domain.effect.Begin` says of it.
    """

    effect_id: UUID
    version: int
    tenant_group: UUID
    effect: State
    traceparent: str | None
    arm: int = 0
    restored: bool = False

    @property
    def server(self) -> Server:
        return self.tenant_group, self.effect.system


class Turns:
    """Effects that wait for a free call, in a queue per server, and behind its gate."""

    def __init__(
        self, *, calls_max: int, calls_per_server_max: int, gates: Gates, waiting_max: int = WAITING_MAX
    ) -> None:
        self._gates = gates
        self._calls_max = calls_max
        self._calls_per_server_max = calls_per_server_max
        self._waiting_max = waiting_max
        self._queues: OrderedDict[Server, OrderedDict[UUID, Turn]] = OrderedDict()
        self._waiting = 0

    def wait(self, turn: Turn) -> None:
        """Let an effect wait behind the others of its server; one that waits already keeps its place."""
        queue = self._queues.get(turn.server, OrderedDict())
        before = queue.get(turn.effect_id)
        if before is None:
            if self._waiting >= self._waiting_max:
                return
            self._waiting += 1
        queue[turn.effect_id] = turn if before is None else replace(turn, arm=max(turn.arm, before.arm))
        self._queues[turn.server] = queue

    def take(self, under_way: Mapping[Server, int]) -> list[Turn]:
        """Those that may be called beside the calls that are under way, one of each server in turn."""
        busy = Counter(under_way)
        taken: list[Turn] = []
        while busy.total() < self._calls_max:
            free = (server for server in self._queues if self._held_by(server, busy[server]) is None)
            server = next(free, None)
            if server is None:
                break
            self._gates.of(server).enter()
            queue = self._queues.pop(server)
            taken.append(queue.popitem(last=False)[1])
            busy[server] += 1
            if queue:
                self._queues[server] = queue  # behind the other servers
        self._waiting -= len(taken)
        return taken

    def held(self, under_way: Mapping[Server, int]) -> dict[Server, tuple[HeldBy, int]]:
        """What keeps those that wait from being called: server → by what, and how many."""
        found: dict[Server, tuple[HeldBy, int]] = {}
        for server, queue in self._queues.items():
            busy = under_way.get(server, 0)
            # Nothing of its own holds it back: all servers together have as many calls as they may.
            found[server] = self._held_by(server, busy) or "calls", len(queue)
        return found

    def opens_at(self) -> float | None:
        """When time alone lets the next one go that waits behind a gate."""
        moments = (self._gates.of(server).opens_at() for server in self._queues)
        return min((moment for moment in moments if moment is not None), default=None)

    def _held_by(self, server: Server, busy: int) -> HeldBy | None:
        return self._gates.of(server).held_by(busy, at_most=self._calls_per_server_max)

    def give_up(self) -> list[Turn]:
        """All that wait, who do not wait here any more."""
        given_up = [turn for queue in self._queues.values() for turn in queue.values()]
        self._queues.clear()
        self._waiting = 0
        return given_up
