"""Records what became of calls and of notices: those that end while a batch is written make the next batch."""

import asyncio
from typing import Final, Generic, TypeVar
from uuid import UUID

from contracts.errors import Conflict, MinutebookError, Unavailable
from libs.owner import Done, Item, Owner
from libs.process import actor
from libs.telemetry.logs import get_logger

BATCH_MAX: Final = 100
RETRY_SECONDS_FIRST: Final = 0.2
RETRY_SECONDS_MAX: Final = 5.0

_ACTOR = actor("effects")

S = TypeVar("S")
C = TypeVar("C")
_Result = Done[S] | MinutebookError
_Piled = tuple[Item[C], asyncio.Future[_Result[S]]]

_log = get_logger("effects.reports")


class Reports(Generic[S, C]):
    """A report is repeated until the record has it, or says that it may not have it."""

    def __init__(self, owner: Owner[S, C]) -> None:
        self._owner = owner
        self._pile: list[_Piled[C, S]] = []
        self._turn = asyncio.Lock()

    async def record(
        self, stream_id: UUID, command: C, *, traceparent: str | None = None, announced: bool = True
    ) -> None:
        """Return when the report is in the history. One that is refused (its claim is old) is logged and dropped.

        Of a call that was perhaps never `announced` a refused report is what is expected.
        """
        item: Item[C] = Item(
            stream_id=stream_id,
            command=command,
            actor=_ACTOR,
            causation=stream_id,
            traceparent=traceparent,
            release=True,
        )
        delay = RETRY_SECONDS_FIRST
        while isinstance(result := await self._submit(item), Unavailable | Conflict):
            _log.debug("report not recorded yet", stream_id=str(stream_id), code=result.code)
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_SECONDS_MAX)
        if isinstance(result, MinutebookError):
            say = _log.warning if announced else _log.debug
            say("report refused", stream_id=str(stream_id), code=result.code, report=type(command).__name__)

    async def _submit(self, item: Item[C]) -> _Result[S]:
        future: asyncio.Future[_Result[S]] = asyncio.get_running_loop().create_future()
        self._pile.append((item, future))
        async with self._turn:
            await self._write()
        return await future

    async def _write(self) -> None:
        """Write what has piled up. Every submitter takes a turn, so as many turns come as there may be batches."""
        batch, self._pile = self._pile[:BATCH_MAX], self._pile[BATCH_MAX:]
        results: list[_Result[S]] = []
        try:
            results = await self._owner.handle([item for item, _ in batch])
        finally:
            # Cancelled in mid-write: the others' reports may or may not stand; repeating them is harmless.
            unknown = Unavailable("report.interrupted", "the batch of this report was interrupted")
            for index, (_, future) in enumerate(batch):
                if not future.done():
                    future.set_result(results[index] if results else unknown)
