"""Asks on core NATS: the answering side, a task for each ask, in queue groups."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from contracts.errors import Broken
from libs.bus.port import AskHandler

_log: Final = structlog.get_logger(component="bus.asking")


@dataclass(frozen=True, slots=True)
class Answered:
    """A subject and who answers it."""

    subject: str
    handler: AskHandler


class Answers:
    """What one connection answers, at most `at_once_max` asks of a subject at a time; the rest waits in the client."""

    def __init__(self, client: Client, answered: Sequence[Answered], *, at_once_max: int) -> None:
        self._client = client
        self._answered = answered
        self._at_once_max = at_once_max
        self._subscriptions: list[Subscription] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Join the queue group of each subject, named like it."""
        for each in self._answered:
            subscription = await self._client.subscribe(each.subject, queue=each.subject, cb=self._receiver(each).take)
            self._subscriptions.append(subscription)

    async def stop(self, timeout: timedelta) -> None:
        """Leave the queue groups, then let the asks that were taken be answered, each at most this long."""
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            with suppress(nats.errors.Error, TimeoutError):  # a connection that is down is in no queue group
                async with asyncio.timeout(timeout.total_seconds()):
                    await subscription.drain()  # type: ignore[no-untyped-call]
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout.total_seconds())
            for task in late:
                task.cancel()

    def _receiver(self, each: Answered) -> "_Receiver":
        return _Receiver(self._client, each, tasks=self._tasks, at_once_max=self._at_once_max)


class _Receiver:
    """Takes the asks of one subject."""

    def __init__(self, client: Client, answered: Answered, *, tasks: set[asyncio.Task[None]], at_once_max: int) -> None:
        self._client = client
        self._subject = answered.subject
        self._handler = answered.handler
        self._tasks = tasks
        self._free = asyncio.Semaphore(at_once_max)

    async def take(self, msg: Msg) -> None:
        """Begin to answer, as soon as it may be."""
        await self._free.acquire()
        task = asyncio.create_task(self._answer(msg), name=self._subject)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._free.release()

    async def _answer(self, msg: Msg) -> None:
        """Handlers answer with typed errors; one that raises leaves its asker waiting, so say why here."""
        try:
            reply = await self._handler(self._subject, msg.data, msg.headers or {})
            if len(reply) > self._client.max_payload:
                raise Broken("bus.reply_too_large", f"a reply has {len(reply)} bytes, more than the server takes")
            await self._client.publish(msg.reply, reply)
        except Exception as error:
            _log.error("ask left unanswered", subject=self._subject, error=type(error).__name__)


__all__ = ["Answered", "Answers"]
