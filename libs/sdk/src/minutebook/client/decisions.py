"""Decisions, and who answers in whose place."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from minutebook.client.connection import Connection, once
from minutebook.models import (
    DecisionAccepted,
    DecisionView,
    DelegateRequest,
    DelegationView,
    InboxItem,
    ReassignRequest,
)
from minutebook.models.states import DecisionOutcome


class DecisionCalls(Connection):
    def inbox(self) -> AsyncIterator[InboxItem]:
        """Open decisions that the caller may answer, oldest first."""
        return self._pages(InboxItem, "/inbox", {})

    async def decision(self, decision_id: UUID | str) -> DecisionView:
        return await self._call(DecisionView, "GET", f"/decisions/{decision_id}")

    async def decide(
        self,
        decision_id: UUID | str,
        outcome: DecisionOutcome,
        *,
        comment: str | None = None,
        revised_artifact: Any = None,
        answer: Any = None,
        shown: str | None = None,
        idempotency_key: str | None = None,
    ) -> DecisionAccepted:
        """Answer a decision, or vote where a quorum is asked for; `answer` is that of a question.

        With `shown`, the `shown_digest` of what was looked at, it is refused when that has become another one.
        """
        body = {"comment": comment, "revised_artifact": revised_artifact, "answer": answer, "shown": shown}
        return await self._call(
            DecisionAccepted,
            "POST",
            f"/decisions/{decision_id}/{outcome}",
            json={key: value for key, value in body.items() if value is not None},
            headers=once(idempotency_key),
        )

    async def reassign(
        self, decision_id: UUID | str, request: ReassignRequest, *, idempotency_key: str | None = None
    ) -> DecisionView:
        """Let a person answer in the place of another, or beside those who may. For administrators."""
        body = request.model_dump(mode="json", exclude_none=True)
        path = f"/decisions/{decision_id}/reassign"
        return await self._call(DecisionView, "POST", path, json=body, headers=once(idempotency_key))

    def delegations(self) -> AsyncIterator[DelegationView]:
        """Who lets whom decide in their place: from and to the caller, for an administrator everybody's."""
        return self._pages(DelegationView, "/delegations", {})

    async def delegate(self, request: DelegateRequest, *, idempotency_key: str | None = None) -> DelegationView:
        """Let a person decide in one's place, until a moment."""
        body = request.model_dump(mode="json", exclude_none=True)
        return await self._call(DelegationView, "POST", "/delegations", json=body, headers=once(idempotency_key))

    async def end_delegation(self, delegation_id: UUID | str) -> DelegationView:
        """End a delegation before its time."""
        return await self._call(DelegationView, "DELETE", f"/delegations/{delegation_id}")
