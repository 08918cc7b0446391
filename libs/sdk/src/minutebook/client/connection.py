"""How the API is called: one request, the pages of a list, and what it makes of a no."""

import os
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel

from minutebook.models import Page, Problem

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


class Connection:
    """The base of every group of calls: where the API is, and the key that opens it."""

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

    async def _pages(self, model: type[M], path: str, filters: Mapping[str, Any]) -> AsyncIterator[M]:
        query: dict[str, Any] = {"limit": PAGE_SIZE, **{k: v for k, v in filters.items() if v is not None}}
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


def once(idempotency_key: str | None) -> dict[str, str] | None:
    """The header that makes a repeated request the same one."""
    return {"idempotency-key": idempotency_key} if idempotency_key else None


def waiting(seconds: float) -> dict[str, Any]:
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
