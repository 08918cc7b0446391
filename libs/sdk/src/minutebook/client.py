"""A client of the HTTP API: typed answers, typed errors."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

import httpx
from pydantic import BaseModel

from minutebook.models import (
    ArtifactView,
    DecisionAccepted,
    DecisionView,
    DefinitionSummary,
    DefinitionView,
    HistoryEntry,
    InboxItem,
    JsonObject,
    MeView,
    Page,
    Problem,
    RunChanged,
    RunsStarted,
    RunSummary,
    RunView,
    StartRunItem,
    StartRunsRequest,
    SyncResult,
)
from minutebook.models.states import DecisionOutcome

M = TypeVar("M", bound=BaseModel)

PREFIX = "/api/public/admin/workflows"
DEFAULT_ADDRESS = "http://127.0.0.1:8080"
TIMEOUT_SECONDS = 30.0
PAGE_SIZE = 100


class ApiError(Exception):
    """The API said no. `problem` is its answer, with a stable `code`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.code}: {problem.detail}")
        self.problem = problem


class Unreachable(Exception):
    """Nobody answers at the address."""


class Client:
    """An asynchronous client; use it as a context manager.

    `address` falls back to `MINUTEBOOK_SERVER_ADDRESS`, then to `http://127.0.0.1:8080`; `api_key`, a personal access
    token or an API key, to `MINUTEBOOK_API_KEY`. Every method raises `ApiError` or `Unreachable`.
    """

    def __init__(self, address: str | None = None, api_key: str | None = None) -> None:
        self.address = (address or os.environ.get("MINUTEBOOK_SERVER_ADDRESS") or DEFAULT_ADDRESS).rstrip("/")
        key = api_key or os.environ.get("MINUTEBOOK_API_KEY")
        if not key:
            raise ValueError("no key: give api_key or set MINUTEBOOK_API_KEY")
        self._http = httpx.AsyncClient(
            base_url=self.address, headers={"authorization": f"Bearer {key}"}, timeout=TIMEOUT_SECONDS
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def me(self) -> MeView:
        return await self._call(MeView, "GET", "/me")

    async def start_run(
        self,
        definition_id: str,
        context: JsonObject,
        *,
        project_id: str | None = None,
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
            json={"context": context, "project_id": project_id},
            headers={"idempotency-key": idempotency_key} if idempotency_key else None,
            **_waiting(wait),
        )

    async def start_runs(self, definition_id: str, items: Sequence[StartRunItem]) -> RunsStarted:
        """Start up to 500 runs of a definition; each is started or refused by itself, and the answers are in order."""
        request = StartRunsRequest(items=tuple(items))
        return await self._call(
            RunsStarted, "POST", f"/definitions/{definition_id}/runs:batch", json=request.model_dump(mode="json")
        )

    async def run(self, run_id: UUID | str, *, wait: float = 0) -> RunView:
        """A run; with `wait` once it has ended, is suspended or waits for somebody, or after that many seconds."""
        return await self._call(RunView, "GET", f"/runs/{run_id}", **_waiting(wait))

    def runs(self, **filters: str) -> AsyncIterator[RunSummary]:
        """Every run that the caller sees, newest first; filters are `definition`, `state` and `project`."""
        return self._pages(RunSummary, "/runs", filters)

    def history(self, run_id: UUID | str) -> AsyncIterator[HistoryEntry]:
        """A run's facts and those of its attempts, decisions and effects, in the order in which they were written."""
        return self._pages(HistoryEntry, f"/runs/{run_id}/history", {})

    async def artifact(self, run_id: UUID | str, step: str) -> ArtifactView:
        return await self._call(ArtifactView, "GET", f"/runs/{run_id}/artifacts/{step}")

    async def operate(self, run_id: UUID | str, act: str, reason: str | None = None) -> RunChanged:
        """Cancel, suspend or resume a run."""
        return await self._call(RunChanged, "POST", f"/runs/{run_id}/{act}", json={"reason": reason} if reason else {})

    async def retry_step(self, run_id: UUID | str, step: str) -> RunChanged:
        return await self._call(RunChanged, "POST", f"/runs/{run_id}/steps/{step}/retry", json={})

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
        idempotency_key: str | None = None,
    ) -> DecisionAccepted:
        body = {"comment": comment, "revised_artifact": revised_artifact}
        return await self._call(
            DecisionAccepted,
            "POST",
            f"/decisions/{decision_id}/{outcome}",
            json={key: value for key, value in body.items() if value is not None},
            headers={"idempotency-key": idempotency_key} if idempotency_key else None,
        )

    def definitions(self) -> AsyncIterator[DefinitionSummary]:
        return self._pages(DefinitionSummary, "/definitions", {})

    async def definition(self, definition_id: str) -> DefinitionView:
        return await self._call(DefinitionView, "GET", f"/definitions/{definition_id}")

    async def sync(self, files: Mapping[str, str]) -> SyncResult:
        """Declare the files of a `definitions/` folder: path → text."""
        return await self._call(SyncResult, "PUT", "/definitions", json={"files": dict(files)})

    async def _pages(self, model: type[M], path: str, filters: Mapping[str, str]) -> AsyncIterator[M]:
        query: dict[str, Any] = {"limit": PAGE_SIZE, **filters}
        while True:
            page: Page[M] = await self._call(Page[model], "GET", path, params=query)  # type: ignore[valid-type]
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            query["cursor"] = page.next_cursor

    async def _call(self, model: type[M], method: str, path: str, **request: Any) -> M:
        try:
            response = await self._http.request(method, PREFIX + path, **request)
        except httpx.HTTPError as error:
            raise Unreachable(f"no answer from {self.address}: {type(error).__name__}") from error
        if response.is_success:
            return model.model_validate_json(response.content)
        raise ApiError(_problem(response))


def _waiting(seconds: float) -> dict[str, Any]:
    """What a request that waits needs: the answer may take that much longer than others."""
    return {"params": {"wait": seconds}, "timeout": TIMEOUT_SECONDS + seconds} if seconds else {}


def _problem(response: httpx.Response) -> Problem:
    try:
        return Problem.model_validate_json(response.content)
    except ValueError:
        return Problem(
            title=response.reason_phrase,
            status=response.status_code,
            code="http.error",
            detail=f"{response.request.url.path} answered {response.status_code} without a problem",
        )


__all__ = ["ApiError", "Client", "Unreachable"]
