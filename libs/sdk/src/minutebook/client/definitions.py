"""Definitions: declared, compared, promoted; and their schedules."""

from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID

from minutebook.client.connection import Connection
from minutebook.models import (
    DefinitionDiff,
    DefinitionPromoted,
    DefinitionSummary,
    DefinitionView,
    ScheduleChanged,
    ScheduleView,
    SyncResult,
)


class DefinitionCalls(Connection):
    def definitions(self) -> AsyncIterator[DefinitionSummary]:
        return self._pages(DefinitionSummary, "/definitions", {})

    async def definition(self, definition_id: str) -> DefinitionView:
        return await self._call(DefinitionView, "GET", f"/definitions/{definition_id}")

    async def sync(self, files: Mapping[str, str], *, canary_percent: int | None = None) -> SyncResult:
        """Declare the files of a `definitions/` folder: path → text.

        With `canary_percent` that share of new runs takes a changed workflow, until a version is promoted.
        """
        body: dict[str, Any] = {"files": dict(files)}
        if canary_percent is not None:
            body["canary_percent"] = canary_percent
        return await self._call(SyncResult, "PUT", "/definitions", json=body)

    async def diff(self, definition_id: str, *, before: str | None = None, after: str | None = None) -> DefinitionDiff:
        """Compare two versions, by default the one that new runs take with the one that was declared last."""
        hashes = {name: text for name, text in (("before", before), ("after", after)) if text}
        return await self._call(DefinitionDiff, "GET", f"/definitions/{definition_id}/diff", params=hashes)

    async def promote(self, definition_id: str, hash: str) -> DefinitionPromoted:  # noqa: A002  what it is called
        """Let every new run take this version; `hash` may be its beginning."""
        return await self._call(
            DefinitionPromoted, "POST", f"/definitions/{definition_id}/promote", json={"hash": hash}
        )

    def schedules(self, *, definition: str | None = None, state: str | None = None) -> AsyncIterator[ScheduleView]:
        """Schedules with their next firings, in order of their definition."""
        return self._pages(ScheduleView, "/schedules", {"definition": definition, "state": state})

    async def pause_schedule(self, schedule_id: UUID | str) -> ScheduleChanged:
        return await self._call(ScheduleChanged, "POST", f"/schedules/{schedule_id}/pause", json={})

    async def resume_schedule(self, schedule_id: UUID | str) -> ScheduleChanged:
        """Let it start runs again. What it would have started meanwhile is not made up for."""
        return await self._call(ScheduleChanged, "POST", f"/schedules/{schedule_id}/resume", json={})
