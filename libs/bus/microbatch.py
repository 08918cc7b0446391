"""From single messages to batches, without a linger and without a timer."""

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeAlias

import structlog

from contracts.errors import Broken, MinutebookError, Stopping, Unavailable
from libs.bus.disposition import HAND_BACK, of
from libs.bus.port import BatchHandler, Delivered, Disposition
from libs.telemetry import metrics

_log = structlog.get_logger(component="bus.microbatch")

_Waiting: TypeAlias = tuple[Delivered, "asyncio.Future[Disposition]"]


class MicroBatcher:
    """Feeds a batch handler with what has piled up.

    What is submitted while a batch is handled makes the next one, `batch_max` at most; one batch is in hand at a
    time. Each submitter awaits the disposition of its own message. Never raises for a message: what a handler
    raises becomes a disposition.
    """

    def __init__(self, handler: BatchHandler, *, name: str, batch_max: int = 200) -> None:
        self._handler = handler
        self._name = name
        self._batch_max = batch_max
        self._backlog: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._batch_messages = metrics.BUS_BATCH_MESSAGES.labels(name)
        self._redelivered = metrics.BUS_REDELIVERED.labels(name)

    def submit(self, delivered: Delivered) -> "asyncio.Future[Disposition]":
        """Take a message; the future tells what becomes of it. Once draining, it is handed back at once."""
        future: asyncio.Future[Disposition] = asyncio.get_running_loop().create_future()
        if self._stopping:
            future.set_result(HAND_BACK)
            return future
        if delivered.deliveries > 1:
            self._redelivered.inc()
        self._backlog.append((delivered, future))
        if self._task is None or self._task.done():
            # The task begins in the loop's next turn, so what comes in this one is in the first batch too.
            self._task = asyncio.create_task(self._run(), name=f"batches of {self._name}")
        return future

    async def drain(self, timeout: timedelta | None = None) -> None:
        """Hand back what has not begun and finish the batch in hand; after `timeout` cancel it and hand it back."""
        self._stopping = True
        while self._backlog:
            _settle(self._backlog.popleft(), of(Stopping("bus.stopping", f"{self._name} is draining")))
        if self._task is None or self._task.done():
            return
        _, running = await asyncio.wait({self._task}, timeout=None if timeout is None else timeout.total_seconds())
        for task in running:
            _log.warning("batch cancelled, its handler did not finish in time", consumer=self._name)
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        while self._backlog:
            batch = [self._backlog.popleft() for _ in range(min(len(self._backlog), self._batch_max))]
            self._batch_messages.observe(len(batch))
            try:
                await self._handle(batch)
            finally:
                # Reached with open futures only by cancellation: nobody knows how far the handler came.
                for waiting in batch:
                    _settle(waiting, HAND_BACK)

    async def _handle(self, batch: Sequence[_Waiting]) -> None:
        try:
            dispositions = await self._call([delivered for delivered, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                _settle(batch[0], self._failed(batch[0][0], error))
                return
            # An outage is told by whose connection it is; here it would be a line per batch and durable.
            level = logging.DEBUG if isinstance(error, Unavailable) else logging.WARNING
            _log.log(
                level,
                "batch failed, its messages are handled one at a time",
                consumer=self._name,
                messages=len(batch),
                **_described(error),
            )
            await self._one_by_one(batch)
            return
        for waiting, disposition in zip(batch, dispositions, strict=True):
            _settle(waiting, disposition)

    async def _one_by_one(self, batch: Sequence[_Waiting]) -> None:
        """Find the message that spoiled the batch, so that it harms itself only.

        Two in a row that meet `Unavailable` are no poison but an outage: the rest shares their fate untried, or a
        database that is down would be waited for once per message.
        """
        outage: Unavailable | None = None
        for index, waiting in enumerate(batch):
            delivered, _ = waiting
            if self._stopping:
                return
            try:
                (disposition,) = await self._call([delivered])
            except Exception as error:
                _settle(waiting, self._failed(delivered, error))
                if isinstance(error, Unavailable) and outage is not None:
                    for rest in batch[index + 1 :]:
                        _settle(rest, of(error, deliveries=rest[0].deliveries))
                    return
                outage = error if isinstance(error, Unavailable) else None
            else:
                outage = None
                _settle(waiting, disposition)

    async def _call(self, batch: Sequence[Delivered]) -> Sequence[Disposition]:
        dispositions = await self._handler(batch)
        if len(dispositions) != len(batch):
            raise Broken(
                "batch.miscounted",
                f"the handler of {self._name} answered {len(batch)} messages with {len(dispositions)} dispositions",
            )
        for delivered, disposition in zip(batch, dispositions, strict=True):
            if disposition.verdict == "term":
                _log.warning("message dead-lettered by its handler", **self._identified(delivered))
        return dispositions

    def _failed(self, delivered: Delivered, error: Exception) -> Disposition:
        disposition = of(error, deliveries=delivered.deliveries)
        if disposition.verdict == "term":
            _log.error("message dead-lettered", **self._identified(delivered), **_described(error))
        return disposition

    def _identified(self, delivered: Delivered) -> dict[str, str | int]:
        return {"consumer": self._name, "subject": delivered.subject, "deliveries": delivered.deliveries}


def _settle(waiting: _Waiting, disposition: Disposition) -> None:
    _, future = waiting
    if not future.done():
        future.set_result(disposition)


def _described(error: Exception) -> dict[str, str]:
    """What a log may say of an error: our own text, but of others only kind and place, as they may quote payloads."""
    if isinstance(error, MinutebookError):
        return {"error": type(error).__name__, "code": error.code, "reason": error.message}
    frames = traceback.extract_tb(error.__traceback__)
    return {"error": type(error).__name__, "reason": f"raised at {frames[-1].filename}:{frames[-1].lineno}"}
