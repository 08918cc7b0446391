"""Judges waits on events: what a wait is given is what it asked for, and what came before it is not passed over."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from libs.eventstore.port import Recorded
from tests.simulation.violation import Violation


@dataclass(slots=True)
class _Wait:
    match: Mapping[str, Any]
    earlier: frozenset[UUID]


@dataclass(slots=True)
class Awaited:
    """Follows the facts of events and of waits."""

    _events: dict[UUID, tuple[datetime, Mapping[str, Any]]] = field(default_factory=dict)
    _waits: dict[UUID, _Wait] = field(default_factory=dict)

    def judge_event(self, recorded: Recorded) -> None:
        """A fact of an event."""
        event: Any = recorded.event
        if recorded.type == "inbound.received":
            self._events[recorded.stream_id] = event.at, {**event.keys, "event": event.event}

    def judge_wait(self, recorded: Recorded) -> None:
        """A fact of a wait."""
        event: Any = recorded.event
        match recorded.type:
            case "wait.opened":
                before = (
                    inbound_id
                    for inbound_id, (at, found) in self._events.items()
                    if at >= event.since and inbound_id not in event.consumed and _fits(event.match, found)
                )
                self._waits[recorded.stream_id] = _Wait(event.match, frozenset(before))
            case "wait.looked_back" if earlier := self._waits[recorded.stream_id].earlier:
                raise Violation(f"a wait passed over what had come before it: {recorded.stream_id}, {sorted(earlier)}")
            case "wait.matched":
                if event.inbound_id not in self._events:
                    raise Violation(f"a wait was given an event that is not recorded: {event.external_id}")
                wanted, found = self._waits[recorded.stream_id].match, {**event.keys, "event": event.event}
                if not _fits(wanted, found):
                    raise Violation(f"a wait for {wanted} was given {found}")


def _fits(match: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    return all(found.get(key) == wanted for key, wanted in match.items())
