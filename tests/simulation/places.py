"""Judges concurrency keys: who may work under one, who waits, in which order."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from libs.eventstore.port import Recorded
from tests.simulation.violation import Violation


@dataclass(slots=True)
class _Key:
    holders: list[UUID] = field(default_factory=list)
    waiting: list[UUID] = field(default_factory=list)
    limit: int = 0


class Places:
    """Follows the facts of runs and of keys. No more runs begin under a key than it allows, first come first served."""

    def __init__(self) -> None:
        self._keys: dict[UUID, _Key] = {}
        self._key_of: dict[UUID, UUID] = {}
        self._working: set[UUID] = set()
        self._held: set[UUID] = set()

    def is_held(self, run_id: UUID) -> bool:
        """Whether a run has seen that it must wait for its turn, and waits for nothing else."""
        return run_id in self._held

    def judge_run(self, recorded: Recorded) -> None:
        """A fact of a run."""
        run_id, event = recorded.stream_id, recorded.event
        match recorded.type:
            case "run.admission_requested":
                asked: Any = event
                self._key_of[run_id] = asked.admission_id
                if asked.working:
                    self._working.add(run_id)
            case "run.held":
                self._held.add(run_id)
            case "run.started" if run_id in self._key_of:
                if run_id not in self._key(self._key_of[run_id]).holders:
                    raise Violation(f"a run began that has no place under its key: {run_id}")
            case "run.admission_returned":
                self._key_of.pop(run_id, None)
        if recorded.type in {"run.started", "run.cancelled", "run.superseded"}:
            self._held.discard(run_id)

    def judge_key(self, recorded: Recorded) -> str:
        """A fact of a key; the state of its stream after that."""
        event: Any = recorded.event
        key, run_id = self._key(recorded.stream_id), event.run_id
        match recorded.type:
            case "admission.granted":
                self._grant(key, run_id, event.limit)
            case "admission.queued":
                if run_id in (*key.holders, *key.waiting):
                    raise Violation(f"a run waits for a key that it holds or waits for already: {run_id}")
                key.limit = event.limit
                key.waiting.append(run_id)
            case _:
                key.holders = [each for each in key.holders if each != run_id]
                key.waiting = [each for each in key.waiting if each != run_id]
        return "busy" if key.holders or key.waiting else "idle"

    def may_wait(self, run_id: UUID) -> bool:
        """Whether a run that has not begun rightly waits: its key is full, and it stands in the queue."""
        key = self._key(self._key_of[run_id]) if run_id in self._key_of else _Key()
        return run_id in key.waiting and len(key.holders) >= key.limit

    def named(self, key_id: UUID) -> tuple[UUID, ...]:
        """The runs that hold a key or wait for it."""
        key = self._key(key_id)
        return (*key.holders, *key.waiting)

    def _grant(self, key: _Key, run_id: UUID, limit: int) -> None:
        if run_id not in self._working:
            if len(key.holders) >= limit:
                raise Violation(f"{len(key.holders) + 1} runs work under a key that allows {limit}: {run_id}")
            if key.waiting and key.waiting[0] != run_id:
                raise Violation(f"a run took a place for which another one waits: {run_id}")
        key.limit = limit
        key.waiting = [each for each in key.waiting if each != run_id]
        key.holders.append(run_id)

    def _key(self, key_id: UUID) -> _Key:
        return self._keys.setdefault(key_id, _Key())
