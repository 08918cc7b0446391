"""Many runs at once: counted first, then asked for one by one."""

import asyncio
from collections.abc import Collection
from typing import Final
from uuid import UUID

from contracts.base import Principal
from contracts.commands import CancelRun, RetryStep
from contracts.errors import MinutebookError, Rejected
from contracts.replies import RunChanged as Changed
from libs.domain.lifecycle import RUN_OPEN
from minutebook.models import BulkItem, BulkRequest, BulkResult, RunChanged
from minutebook.models.operations import BULK_RUNS_MAX
from services.api.door import Door
from services.api.run_lists import RunFilter

SAMPLE: Final = 10
"""Runs that are shown before anything is done."""

TOGETHER: Final = 16
"""Asks that are under way at a time: enough to fill the planner's batches, few enough to leave room for others."""

_POSSIBLE: Final[dict[str, frozenset[str]]] = {"cancel": RUN_OPEN, "retry": frozenset({"failed", "suspended"})}
"""States in which an act can be possible at all. Whether it is, each run's owner says."""


async def bulk(door: Door, caller: Principal, body: BulkRequest) -> BulkResult:
    """Count what the request takes; with `confirm`, do it.

    Raises:
        contracts.errors.Rejected: ``bulk.count_changed`` (409) when the count is not the confirmed one,
            ``bulk.too_many`` (422) when more are taken than one request may change.
    """
    wanted = _filter(body)
    if body.confirm is None:
        count, sample = await asyncio.gather(
            door.queries.count_runs(caller, wanted), door.queries.runs(caller, wanted, limit=SAMPLE)
        )
        if count > BULK_RUNS_MAX:
            raise Rejected(
                "bulk.too_many",
                f"the filter takes {count} runs; one request changes {BULK_RUNS_MAX} at most: narrow it, by time for "
                "example",
                count=count,
            )
        return BulkResult(count=count, sample=sample.items)
    page = await door.queries.runs(caller, wanted, limit=max(1, body.confirm))
    if page.next_cursor is not None or len(page.items) != body.confirm:
        count = await door.queries.count_runs(caller, wanted)
        raise Rejected(
            "bulk.count_changed",
            f"the filter takes {count} runs now, not {body.confirm}: nothing was done; look again and confirm that",
            status=409,
            count=count,
        )
    run_ids = [run.run_id for run in page.items]
    items = await _each(door, caller, body, run_ids)
    return BulkResult(count=len(items), sample=(), items=items)


def _filter(body: BulkRequest) -> RunFilter:
    asked = body.filter
    possible = _POSSIBLE[body.act]
    return RunFilter(
        definition_id=asked.definition,
        states=possible.intersection(asked.state) if asked.state else possible,
        project_id=asked.project,
        initiated_by=asked.initiated_by,
        parent=asked.parent,
        created_from=asked.created_from,
        created_before=asked.created_before,
        context=asked.context,
    )


async def _each(door: Door, caller: Principal, body: BulkRequest, run_ids: Collection[UUID]) -> tuple[BulkItem, ...]:
    steps = await door.views.failed_steps(caller, run_ids) if body.act == "retry" else {}
    slots = asyncio.Semaphore(TOGETHER)

    async def one(run_id: UUID) -> BulkItem:
        step = steps.get(run_id)
        async with slots:
            try:
                if body.act == "cancel":
                    changed = await _cancel(door, caller, run_id, body.reason)
                elif step is not None:
                    changed = await _retry(door, caller, run_id, step)
                else:
                    raise Rejected("run.nothing_failed", "no step of the run has failed; resume it instead", status=409)
            except MinutebookError as error:
                return BulkItem(run_id=run_id, step=step, problem=error.problem())
        run = RunChanged(run_id=changed.run_id, state=changed.state, version=changed.version)
        return BulkItem(run_id=run_id, step=step, run=run)

    return tuple(await asyncio.gather(*map(one, run_ids)))


async def _cancel(door: Door, caller: Principal, run_id: UUID, reason: str | None) -> Changed:
    said = {} if reason is None else {"reason": reason}
    return await door.ask(CancelRun(**await door.opening(caller), run_id=run_id, **said), Changed)


async def _retry(door: Door, caller: Principal, run_id: UUID, step: str) -> Changed:
    return await door.ask(RetryStep(**await door.opening(caller), run_id=run_id, step=step), Changed)
