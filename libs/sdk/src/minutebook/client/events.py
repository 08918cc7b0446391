"""What came in, and what services gave up on."""

from collections.abc import AsyncIterator
from uuid import UUID

from minutebook.client.connection import Connection, once
from minutebook.models import DeadLetterView, DeliverRequest, EventRouted, EventSummary, EventView


class EventCalls(Connection):
    def events(self, *, source: str | None = None, unmatched: bool | None = None) -> AsyncIterator[EventSummary]:
        """Inbound events, newest first; with `unmatched` those that nothing followed from."""
        said = None if unmatched is None else str(unmatched).lower()
        return self._pages(EventSummary, "/events", {"source": source, "unmatched": said})

    def dead_letters(self) -> AsyncIterator[DeadLetterView]:
        """What services gave up on, the one that failed last first. For administrators."""
        return self._pages(DeadLetterView, "/dead-letters", {})

    async def event(self, event_id: UUID | str) -> EventView:
        return await self._call(EventView, "GET", f"/events/{event_id}")

    async def replay_event(self, event_id: UUID | str, *, idempotency_key: str | None = None) -> EventRouted:
        """Route an event again, by what is declared and waits now."""
        return await self._call(
            EventRouted, "POST", f"/events/{event_id}/replay", json={}, headers=once(idempotency_key)
        )

    async def deliver_event(
        self, event_id: UUID | str, run_id: UUID | str, step: str, *, idempotency_key: str | None = None
    ) -> EventRouted:
        """Hand an event to a run's waiting step, whatever that step asks for."""
        request = DeliverRequest(run_id=UUID(str(run_id)), step=step)
        return await self._call(
            EventRouted,
            "POST",
            f"/events/{event_id}/deliver",
            json=request.model_dump(mode="json"),
            headers=once(idempotency_key),
        )
