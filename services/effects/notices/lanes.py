"""Which notice is sent next: a channel that is slow holds up no other."""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Final
from uuid import UUID

WAITING_MAX: Final = 10_000
"""Notices that wait here for their turn. Those beyond it come back by their wake."""

Channel = tuple[UUID, str]
"""A tenant group, and the channel that it declared."""


class Lanes:
    """Notices that wait for a free try, in a queue per channel."""

    def __init__(self, *, tries_max: int, tries_per_channel_max: int, waiting_max: int = WAITING_MAX) -> None:
        self._tries_max = tries_max
        self._tries_per_channel_max = tries_per_channel_max
        self._waiting_max = waiting_max
        self._queues: OrderedDict[Channel, OrderedDict[UUID, None]] = OrderedDict()
        self._waiting = 0

    def wait(self, channel: Channel, notice_id: UUID) -> None:
        """Let a notice wait behind the others of its channel; one that waits already keeps its place."""
        queue = self._queues.get(channel, OrderedDict())
        if notice_id in queue or self._waiting >= self._waiting_max:
            return
        queue[notice_id] = None
        self._queues[channel] = queue
        self._waiting += 1

    def take(self, under_way: Mapping[Channel, int]) -> list[UUID]:
        """Those that may be sent beside the tries that are under way, one of each channel in turn."""
        busy = Counter(under_way)
        taken: list[UUID] = []
        while busy.total() < self._tries_max:
            free = (channel for channel in self._queues if busy[channel] < self._tries_per_channel_max)
            channel = next(free, None)
            if channel is None:
                break
            queue = self._queues.pop(channel)
            taken.append(queue.popitem(last=False)[0])
            busy[channel] += 1
            if queue:
                self._queues[channel] = queue  # behind the other channels
        self._waiting -= len(taken)
        return taken

    def give_up(self) -> list[UUID]:
        """All that wait, which do not wait here any more."""
        given_up = [notice_id for queue in self._queues.values() for notice_id in queue]
        self._queues.clear()
        self._waiting = 0
        return given_up
