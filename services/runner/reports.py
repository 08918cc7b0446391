"""Reports of attempts on their way into the history, as many in a statement as have piled up."""

import asyncio
from collections import deque
from typing import Final, TypeAlias

from contracts.errors import Broken, MinutebookError
from libs.domain import attempt
from libs.owner import Done, Item, Owner
from libs.telemetry import metrics
from libs.telemetry.logs import get_logger

REPORTS_PER_BATCH_MAX: Final = 200

Result = Done[attempt.State] | MinutebookError
_Waiting: TypeAlias = tuple[Item[attempt.Command], "asyncio.Future[Result]"]

_log = get_logger("runner.reports")


class Reports:
    """Gathers single reports into batches: what comes while one is written makes the next."""

    def __init__(self, owner: Owner[attempt.State, attempt.Command]) -> None:
        self._owner = owner
        self._waiting: deque[_Waiting] = deque()
        self._writing: asyncio.Task[None] | None = None

    async def report(self, item: Item[attempt.Command]) -> Result:
        """Carry one report out. A caller that is cancelled leaves it to be carried out all the same."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="reports of attempts")
        return await future

    async def flush(self) -> None:
        """Wait until every report was carried out."""
        if self._writing is not None:
            await asyncio.wait({self._writing})

    async def _write(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), REPORTS_PER_BATCH_MAX))]
            try:
                results = await self._owner.handle([item for item, _ in batch])
            except Exception as error:
                _log.exception("reports failed", reports=len(batch))
                broken = Broken("report.failed", f"{type(error).__name__} while reporting; see the log")
                results = [broken] * len(batch)
            for (item, future), result in zip(batch, results, strict=True):
                if isinstance(result, Done) and result.changed:
                    _count_calls(item.command)
                if not future.done():
                    future.set_result(result)


def _count_calls(report: attempt.Command) -> None:
    match report:
        case attempt.Succeed(model=str(model), turns=calls):
            metrics.MODEL_CALLS.labels(model, "succeeded").inc(calls)
        case attempt.Fail(model=str(model), turns=calls, failure_class=failure_class):
            metrics.MODEL_CALLS.labels(model, failure_class).inc(calls)
