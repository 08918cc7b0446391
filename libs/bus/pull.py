"""One durable of JetStream, pulled without a pause into a micro-batcher, and watched.

Why this is not FastStream's pull subscriber: docs/adr/0003-bus-on-faststream-and-nats-py.md.
"""

import asyncio
import json
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

import nats.errors
import nats.js.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from contracts.subjects import DurableSpec
from libs.bus.disposition import backoff
from libs.bus.microbatch import MicroBatcher
from libs.bus.port import Delivered, Disposition
from libs.faultpoints import faultpoint

LOST_LINK: Final = "the connection is down"

_REQUEST_EXPIRES: Final = timedelta(seconds=30)
_REBIND_PAUSE_MAX: Final = timedelta(seconds=5)
_BLIPS_UNLOGGED: Final = 1
"""A durable that can be bound again at the next try is not worth a line."""

_ENDED: Final = frozenset({"404", "408"})
_HEARTBEAT: Final = "100"
_BATCH_COMPLETED: Final = "Batch Completed"

_log = structlog.get_logger(component="bus.pull")


@dataclass(frozen=True, slots=True)
class _Held:
    """A message that was taken and has no disposition on the wire yet."""

    msg: Msg
    since: float


class DurablePull:
    """Keeps one request for messages open at the server, so that a message comes the moment it is there.

    At most two batches are held: one in hand, one piling up. The server sends a heartbeat on an idle request;
    silence, a refusal or a deleted durable end the request, and the durable is bound again with backoff.
    """

    def __init__(
        self, client: Client, durable: DurableSpec, batcher: MicroBatcher, *, batch_max: int, heartbeat: timedelta
    ) -> None:
        self._client = client
        self._durable = durable
        self._batcher = batcher
        self._batch_max = batch_max
        self._heartbeat = heartbeat
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{durable.stream}.{durable.name}"
        self._inbox = ""
        self._request = 0
        self._outstanding = 0
        self._heard = 0.0
        self._proved = False
        self._troubled = False
        self._stopping = False
        self._fault: str | None = None
        self._nudge = asyncio.Event()
        self._linked = asyncio.Event()
        self._held: dict[str, _Held] = {}
        self._disposed: deque[tuple[Msg, Disposition]] = deque()
        self._to_settle = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._first_try = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._watch: asyncio.Task[None] | None = None
        self.bound = False

    @property
    def held(self) -> int:
        return len(self._held)

    async def start(self) -> None:
        """Begin, and return after the first try to bind, whatever came of it."""
        self._linked.set()
        self._watch = asyncio.create_task(self._supervise(), name=f"pull of {self._durable.name}")
        self._tasks = [
            asyncio.create_task(self._settle(), name=f"acks of {self._durable.name}"),
            asyncio.create_task(self._keep_alive(), name=f"progress of {self._durable.name}"),
        ]
        await self._first_try.wait()

    def link_lost(self) -> None:
        """The connection is gone, and the open request with it."""
        self._linked.clear()
        self._end(LOST_LINK)

    def link_restored(self) -> None:
        """The connection is back: bind again at once."""
        self._linked.set()

    async def stop(self, timeout: timedelta) -> None:
        """Take no more, finish the batch in hand, hand back the rest and send all of that off."""
        self._stopping = True
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait({self._watch}, timeout=timeout.total_seconds())
        await self._batcher.drain(timeout)
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._settled.wait()
        except TimeoutError:
            _log.warning("messages left unsettled, they come again", durable=self._durable.name, held=len(self._held))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _supervise(self) -> None:
        tries = 0
        while True:
            await self._linked.wait()
            try:
                trouble = await self._session()
            except Exception:
                _log.exception("pull failed", durable=self._durable.name)
                trouble = "it failed here; see the log"
            self._first_try.set()
            if self._proved:
                tries = 0
            if trouble == LOST_LINK:
                continue
            tries += 1
            _log.debug("pull ended", durable=self._durable.name, reason=trouble)
            if tries > _BLIPS_UNLOGGED and not self._troubled:
                self._troubled = True
                _log.warning("durable is not consumed, trying again", durable=self._durable.name, reason=trouble)
            await asyncio.sleep(min(backoff(tries), _REBIND_PAUSE_MAX).total_seconds())

    async def _session(self) -> str:
        """Bind and pull until something is wrong; returns what."""
        self._proved, self._fault, self._outstanding = False, None, 0
        try:
            info = await self._client.jsm().consumer_info(self._durable.stream, self._durable.name)
            if info.config.deliver_subject is not None:
                return "it is a push consumer; declare the streams and durables again"
            self._inbox = self._client.new_inbox()
            subscription = await self._client.subscribe(f"{self._inbox}.*", cb=self._on_message)
        except nats.js.errors.NotFoundError:
            return "it does not exist; declare the streams and durables"
        except (nats.errors.Error, TimeoutError) as error:
            return LOST_LINK if not self._linked.is_set() else f"the server does not answer: {type(error).__name__}"
        self.bound = True
        self._first_try.set()
        try:
            return await self._pull_until_fault()
        except nats.errors.Error as error:
            return f"the request could not be sent: {type(error).__name__}"
        finally:
            self.bound = False
            await self._end_subscription(subscription)

    async def _end_subscription(self, subscription: Subscription) -> None:
        """End it; while stopping, take what the server sent before it heard of that, so that it is handed back.

        After a fault nothing is waited for: the server may be what does not answer.
        """
        with suppress(nats.errors.Error, TimeoutError):  # a connection that is closed has no subscriptions
            if self._stopping and self._linked.is_set():
                await subscription.drain()  # type: ignore[no-untyped-call]
            else:
                await subscription.unsubscribe()

    async def _pull_until_fault(self) -> str:
        silence_max = self._heartbeat.total_seconds() * 2.5
        loop = asyncio.get_running_loop()
        while self._fault is None:
            self._nudge.clear()
            if self._outstanding == 0 and len(self._held) <= self._batch_max:
                await self._ask_for(2 * self._batch_max - len(self._held))
            try:
                async with asyncio.timeout(silence_max):
                    await self._nudge.wait()
            except TimeoutError:
                if self._outstanding and loop.time() - self._heard >= silence_max:
                    return f"the server was silent for {silence_max:g} s"
        return self._fault

    async def _ask_for(self, messages: int) -> None:
        self._request += 1
        self._outstanding = messages
        self._heard = asyncio.get_running_loop().time()
        request = {
            "batch": messages,
            "expires": _nanoseconds(_REQUEST_EXPIRES),
            "idle_heartbeat": _nanoseconds(self._heartbeat),
        }
        await self._client.publish(self._next, json.dumps(request).encode(), reply=f"{self._inbox}.{self._request}")

    async def _on_message(self, msg: Msg) -> None:
        self._heard = asyncio.get_running_loop().time()
        if msg.subject.startswith(self._inbox):
            self._on_status(msg)
        else:
            self._prove()
            self._take(msg)

    def _on_status(self, msg: Msg) -> None:
        if msg.subject.rpartition(".")[2] != str(self._request):
            return  # of a request that ended before
        headers = msg.headers or {}
        status, description = headers.get("Status", ""), headers.get("Description", "")
        if status == _HEARTBEAT:
            self._prove()
        elif status in _ENDED or description == _BATCH_COMPLETED:
            self._prove()
            self._outstanding = 0
            self._nudge.set()
        else:
            # Whatever it is (deleted, too many requests, no such consumer), asking again at once could spin.
            self._end(f"the server ended the request: {status} {description}".strip())

    def _prove(self) -> None:
        """The server answers: the binding works, not only exists."""
        self._proved = True
        if self._troubled:
            self._troubled = False
            _log.info("durable is consumed again", durable=self._durable.name)

    def _end(self, fault: str) -> None:
        self._fault = fault
        self._nudge.set()

    def _take(self, msg: Msg) -> None:
        self._outstanding = max(self._outstanding - 1, 0)
        if self._outstanding == 0:
            self._nudge.set()
        self._held[msg.reply] = _Held(msg, self._heard)
        self._settled.clear()
        future = self._batcher.submit(
            Delivered(
                subject=msg.subject,
                data=msg.data,
                headers=dict(msg.headers or {}),
                deliveries=msg.metadata.num_delivered,
            )
        )
        future.add_done_callback(partial(self._on_disposed, msg))

    def _on_disposed(self, msg: Msg, future: "asyncio.Future[Disposition]") -> None:
        self._disposed.append((msg, future.result()))
        self._to_settle.set()

    async def _settle(self) -> None:
        while True:
            await self._to_settle.wait()
            self._to_settle.clear()
            faultpoint("message.handled")
            while self._disposed:
                msg, disposition = self._disposed.popleft()
                try:
                    await _send(msg, disposition)
                except nats.errors.Error as error:
                    _log.warning(
                        "disposition not sent, the message comes again",
                        durable=self._durable.name,
                        verdict=disposition.verdict,
                        error=type(error).__name__,
                    )
                del self._held[msg.reply]
            if not self._held:
                self._settled.set()
            self._nudge.set()

    async def _keep_alive(self) -> None:
        """Tell the server of what takes long, also of what waits behind it, before it sends it to another."""
        third = self._durable.ack_wait.total_seconds() / 3
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(third)
            for held in list(self._held.values()):
                if loop.time() - held.since >= third:
                    with suppress(nats.errors.Error):  # the link is down: the server counts on without us
                        await held.msg.in_progress()


async def _send(msg: Msg, disposition: Disposition) -> None:
    match disposition.verdict:
        case "ack":
            await msg.ack()
        case "nak":
            await msg.nak(delay=disposition.delay.total_seconds())
        case "term":
            await msg.term()


def _nanoseconds(span: timedelta) -> int:
    return int(span.total_seconds() * 1_000_000_000)
