"""What a runner has in hand: its slots, the claims it holds, and the tasks that carry them out."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from libs.eventstore.port import Claimed
from libs.telemetry.logs import get_logger

_log = get_logger("runner")


@dataclass(slots=True)
class _Held:
    claim: UUID
    task: asyncio.Task[None] | None = None


class Hand:
    """Attempts that this runner holds a claim on, at most `slots` of them. `on_free` is called whenever one ends."""

    def __init__(self, *, slots: int, on_free: Callable[[], None]) -> None:
        self._slots = slots
        self._on_free = on_free
        self._held: dict[UUID, _Held] = {}

    @property
    def free(self) -> int:
        return self._slots - len(self._held)

    def claims(self) -> Sequence[tuple[UUID, UUID]]:
        """Every (attempt, claim) that is held."""
        return [(attempt_id, held.claim) for attempt_id, held in self._held.items()]

    def take(self, claimed: Claimed) -> None:
        """Occupy a slot with a claim that was just made."""
        self._held[claimed.attempt_id] = _Held(claimed.claim)

    def drop(self, attempt_id: UUID, claim: UUID) -> None:
        """Free the slot of a claim. Another claim on the same attempt stays."""
        held = self._held.get(attempt_id)
        if held is not None and held.claim == claim:
            del self._held[attempt_id]
            self._on_free()

    def begin(self, attempt_id: UUID, claim: UUID, work: Coroutine[Any, Any, None]) -> None:
        """Carry out a held attempt as a task of its own; its slot is free once the task ended.

        A claim that was lost in the meantime begins nothing.
        """
        held = self._held.get(attempt_id)
        if held is None or held.claim != claim:
            work.close()
            return
        held.task = asyncio.create_task(work, name=f"attempt {attempt_id}")
        held.task.add_done_callback(lambda task: self._ended(attempt_id, claim, task))

    def abandon(self, attempt_id: UUID, claim: UUID | None, *, why: str) -> None:
        """Stop carrying out an attempt at once. `claim` None means whichever is held."""
        held = self._held.get(attempt_id)
        if held is None or claim not in (None, held.claim):
            return
        _log.info("attempt abandoned", attempt_id=str(attempt_id), why=why)
        if held.task is None:
            self.drop(attempt_id, held.claim)
        else:
            held.task.cancel()

    async def finish(self, within: timedelta) -> None:
        """Wait until everything in hand has ended, at most this long."""
        tasks = [held.task for held in self._held.values() if held.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=within.total_seconds())

    async def let_go(self, *, why: str) -> Sequence[tuple[UUID, UUID]]:
        """Abandon everything and return the (attempt, claim) pairs that had no result."""
        rest = self.claims()
        tasks = [held.task for held in self._held.values() if held.task is not None]
        for attempt_id, claim in rest:
            self.abandon(attempt_id, claim, why=why)
        await asyncio.gather(*tasks, return_exceptions=True)
        return rest

    def _ended(self, attempt_id: UUID, claim: UUID, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("attempt ended by a bug", attempt_id=str(attempt_id), error=type(error).__name__, exc_info=error)
        self.drop(attempt_id, claim)
