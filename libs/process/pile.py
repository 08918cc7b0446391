"""From single pieces of work to batches: what comes while a batch is carried out makes the next one."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from contracts.errors import Broken, MinutebookError
from libs.telemetry.logs import get_logger

T = TypeVar("T")
R = TypeVar("R")

BATCH_MAX: Final = 200

_log = get_logger("pile")

Outcome: TypeAlias = R | MinutebookError


class Pile(Generic[T, R]):
    """Gathers what single callers want done, without a linger and without a timer.

    One batch is in hand at a time, `batch_max` at most. `carry_out` answers one outcome per piece, in order; what it
    raises is everybody's outcome of that batch.
    """

    def __init__(
        self,
        carry_out: Callable[[Sequence[T]], Awaitable[Sequence[Outcome[R]]]],
        *,
        name: str,
        batch_max: int = BATCH_MAX,
    ) -> None:
        self._carry_out = carry_out
        self._name = name
        self._batch_max = batch_max
        self._waiting: deque[tuple[T, asyncio.Future[Outcome[R]]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def put(self, piece: T) -> Outcome[R]:
        """Have one piece done. A caller that is cancelled leaves it to be done all the same."""
        future: asyncio.Future[Outcome[R]] = asyncio.get_running_loop().create_future()
        self._waiting.append((piece, future))
        if self._task is None or self._task.done():
            # The task begins in the loop's next turn, so what comes in this one is in the first batch too.
            self._task = asyncio.create_task(self._run(), name=self._name)
        return await future

    async def flush(self) -> None:
        """Wait until everything was carried out."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._batch_max))]
            outcomes: Sequence[Outcome[R]]
            try:
                outcomes = await self._carry_out([piece for piece, _ in batch])
                if len(outcomes) != len(batch):
                    raise Broken("pile.miscounted", f"{len(batch)} {self._name} had {len(outcomes)} outcomes")
            except MinutebookError as error:
                outcomes = [error] * len(batch)
            except Exception as error:
                _log.exception("batch failed", batch=self._name, pieces=len(batch))
                broken = Broken("pile.failed", f"{type(error).__name__} with {self._name}; see the log")
                outcomes = [broken] * len(batch)
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if not future.done():
                    future.set_result(outcome)
