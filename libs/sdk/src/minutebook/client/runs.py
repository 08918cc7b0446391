"""Runs: started, read and moved on."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from minutebook.client.connection import Connection, once, waiting
from minutebook.models import (
    ArtifactView,
    BulkRequest,
    BulkResult,
    ForkRequest,
    HistoryEntry,
    JsonObject,
    RunChanged,
    RunsFilter,
    RunsStarted,
    RunSummary,
    RunView,
    StartRunItem,
    StartRunsRequest,
    TaskItem,
)

BULK_TIMEOUT_SECONDS = 300.0


class RunCalls(Connection):
    async def start_run(
        self,
        definition_id: str,
        context: JsonObject,
        *,
        project_id: str | None = None,
        variant: str | None = None,
        idempotency_key: str | None = None,
        wait: float = 0,
    ) -> RunChanged:
        """Start a run. The same idempotency key starts one run, however often it is sent.

        `wait` is how many seconds (60 at most) to wait for it to end, to be suspended, or to wait for somebody.
        """
        return await self._call(
            RunChanged,
            "POST",
            f"/definitions/{definition_id}/runs",
            json={"context": context, "project_id": project_id, "variant": variant},
            headers=once(idempotency_key),
            **waiting(wait),
        )

    async def start_runs(self, definition_id: str, items: Sequence[StartRunItem]) -> RunsStarted:
        """Start up to 500 runs of a definition; each is started or refused by itself, and the answers are in order."""
        request = StartRunsRequest(items=tuple(items))
        return await self._call(
            RunsStarted, "POST", f"/definitions/{definition_id}/runs:batch", json=request.model_dump(mode="json")
        )

    async def run(self, run_id: UUID | str, *, wait: float = 0) -> RunView:
        """A run; with `wait` once it has ended, is suspended or waits for somebody, or after that many seconds."""
        return await self._call(RunView, "GET", f"/runs/{run_id}", **waiting(wait))

    def runs(
        self,
        *,
        definition: str | None = None,
        state: str | Sequence[str] | None = None,
        project: str | None = None,
        initiated_by: UUID | str | None = None,
        parent: UUID | str | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        context: Mapping[str, str] | None = None,
    ) -> AsyncIterator[RunSummary]:
        """Every run that the caller sees, newest first. `context` names plain values of the run's context."""
        filters = {
            "definition": definition,
            "state": state,
            "project": project,
            "initiated_by": initiated_by,
            "parent": parent,
            "created_from": created_from.isoformat() if created_from else None,
            "created_before": created_before.isoformat() if created_before else None,
            **{f"context.{key}": value for key, value in (context or {}).items()},
        }
        return self._pages(RunSummary, "/runs", filters)

    def history(self, run_id: UUID | str) -> AsyncIterator[HistoryEntry]:
        """A run's facts and those of its attempts, decisions, waits and effects, in the order in which they came."""
        return self._pages(HistoryEntry, f"/runs/{run_id}/history", {})

    async def artifact(self, run_id: UUID | str, step: str) -> ArtifactView:
        return await self._call(ArtifactView, "GET", f"/runs/{run_id}/artifacts/{step}")

    async def operate(self, run_id: UUID | str, act: str, reason: str | None = None) -> RunChanged:
        """Cancel, suspend or resume a run."""
        return await self._call(RunChanged, "POST", f"/runs/{run_id}/{act}", json={"reason": reason} if reason else {})

    async def retry_step(self, run_id: UUID | str, step: str) -> RunChanged:
        return await self._call(RunChanged, "POST", f"/runs/{run_id}/steps/{step}/retry", json={})

    async def complete_step(
        self,
        run_id: UUID | str,
        step: str,
        artifact: Any,
        *,
        comment: str | None = None,
        idempotency_key: str | None = None,
    ) -> RunChanged:
        """Complete a manual step with an artefact."""
        return await self._call(
            RunChanged,
            "POST",
            f"/runs/{run_id}/steps/{step}/complete",
            json={"artifact": artifact, "comment": comment},
            headers=once(idempotency_key),
        )

    async def restart(self, run_id: UUID | str, *, idempotency_key: str | None = None) -> RunChanged:
        """Start a new run with the context of this one; answers the new run."""
        return await self._call(RunChanged, "POST", f"/runs/{run_id}/restart", json={}, headers=once(idempotency_key))

    async def fork(
        self, run_id: UUID | str, request: ForkRequest | None = None, *, idempotency_key: str | None = None
    ) -> RunChanged:
        """Start a new run from a point of this one's history, by default the present; answers the new run."""
        return await self._call(
            RunChanged,
            "POST",
            f"/runs/{run_id}/fork",
            json=request.model_dump(mode="json") if request else {},
            headers=once(idempotency_key),
        )

    async def bulk(
        self,
        act: Literal["retry", "cancel"],
        filter: RunsFilter,  # noqa: A002  what the request calls it
        *,
        confirm: int | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """Retry or cancel every run that a filter takes.

        Without `confirm` they are counted; with it, which must be that count, each is asked for by itself.
        """
        request = BulkRequest(act=act, filter=filter, confirm=confirm, reason=reason)
        return await self._call(
            BulkResult, "POST", "/runs:bulk", json=request.model_dump(mode="json"), timeout=BULK_TIMEOUT_SECONDS
        )

    def tasks(self) -> AsyncIterator[TaskItem]:
        """Every manual step that the caller may complete, those of the oldest runs first."""
        return self._pages(TaskItem, "/tasks", {})
