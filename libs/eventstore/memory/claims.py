"""The queue of work in memory."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from contracts.events.attempt import AttemptQueued
from libs.domain.lifecycle import RUN_ACTIVE
from libs.eventstore.memory.holding import Head, Holding
from libs.eventstore.port import (
    Claimed,
    Loaded,
)


class MemoryClaims(Holding):
    """As `libs.eventstore.claims` has it."""

    async def claim(self, subjects: Collection[str] | None, *, limit: int, lease: timedelta) -> Sequence[Claimed]:
        turn = sorted(
            (-ready.priority, ready.queued_at, attempt_id)
            for attempt_id, ready in self._ready.items()
            if subjects is None or ready.subject in subjects
        )
        claimed = []
        for _, queued_at, attempt_id in turn[:limit]:
            del self._ready[attempt_id]
            head = self.rows["attempt"].get(attempt_id)
            if head is None or not self._claimable(head):
                continue
            until = self.clock + lease
            claim = self._mint_claim()
            self.rows["attempt"][attempt_id] = replace(head, claim=claim, lease_until=until, wake_at=until)
            stream = self._loaded("attempt", attempt_id, 0)
            claimed.append(Claimed(attempt_id, claim, until, queued_at, stream, self._request(stream)))
        return claimed

    def _request(self, stream: Loaded) -> bytes | None:
        birth = stream.events[0].event
        assert isinstance(birth, AttemptQueued)
        return self._blobs.get((stream.events[0].metadata.tenant_group, birth.request.digest))

    def _claimable(self, head: Head) -> bool:
        run = self.rows["run"].get(head.columns["run_id"])
        free = head.claim is None or (head.lease_until is not None and head.lease_until <= self.clock)
        return free and head.state == "queued" and run is not None and run.state in RUN_ACTIVE

    async def renew(self, claims: Collection[tuple[UUID, UUID]], *, lease: timedelta) -> frozenset[UUID]:
        held = set()
        until = self.clock + lease
        for attempt_id, claim in claims:
            head = self.rows["attempt"].get(attempt_id)
            if head is not None and head.claim == claim:
                self.rows["attempt"][attempt_id] = replace(head, lease_until=until, wake_at=until)
                held.add(attempt_id)
        return frozenset(held)

    async def waiting(self) -> Mapping[str, int]:
        return Counter(ready.subject for ready in self._ready.values())
