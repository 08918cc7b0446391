"""What was committed is published while its owner goes on."""

import asyncio
from collections.abc import Collection
from typing import Final

from libs.eventstore.port import Append, BatchResult
from libs.owner.publisher import Publisher
from libs.telemetry.logs import get_logger

TELLING_MAX: Final = 8
"""How many batches may be committed and not acknowledged by the bus yet. The next one waits, as the bus is slow."""

_log = get_logger("owner")


class Telling:
    """Has the batches of an owner published, without facts of `quiet` types."""

    def __init__(self, publisher: Publisher, *, category: str, quiet: frozenset[str]) -> None:
        self._publisher = publisher
        self._category = category
        self._quiet = quiet
        self._under_way: set[asyncio.Task[None]] = set()

    async def tell(self, batch: BatchResult, appends: Collection[Append]) -> None:
        """Have it published, and go on while the bus acknowledges: what is committed is found by the sweep anyway.

        Begins at once, so that what was decided here leaves before any answer to it.
        """
        while len(self._under_way) >= TELLING_MAX:
            await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(
            self._publisher.publish(batch, _work(appends, batch), quiet=self._quiet),
            name=f"publishing of {self._category}",
        )
        self._under_way.add(task)
        task.add_done_callback(self._told)
        await asyncio.sleep(0)

    def _told(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            _log.error("facts were not published, the sweep will try", category=self._category, exc_info=error)


def _work(appends: Collection[Append], batch: BatchResult) -> list[str]:
    """The work subjects that this batch queued, births that were skipped left out."""
    skipped = {stream_id for fate in batch.appended for stream_id in fate.skipped}
    won = {fate.stream_id for fate in batch.appended if fate.fate == "won"}
    return [
        subject
        for append in appends
        if append.stream_id in won
        for subject in (
            *(b.work_subject for b in append.births if b.work_subject and b.stream_id not in skipped),
            *append.ready.values(),
        )
    ]
