"""The bus in one process, for tests and simulation: the same promises as JetStream, kept by `MemoryBroker`.

What is left out: age and size limits of streams (nothing is dropped), and the network.
"""

import asyncio
import itertools
from collections import OrderedDict, deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import structlog

from contracts.errors import Unavailable
from contracts.subjects import DURABLES, STREAMS, DurableSpec, StreamSpec
from libs.bus.limits import check_sizes
from libs.bus.microbatch import MicroBatcher
from libs.bus.port import NOT_CONNECTED, AskHandler, BatchHandler, Delivered, Disposition, Listener, Message

_log = structlog.get_logger(component="bus.memory")


def subject_matches(pattern: str, subject: str) -> bool:
    """NATS's rule: `*` stands for one token, `>` at the end for one or more."""
    wanted, tokens = pattern.split("."), subject.split(".")
    for index, part in enumerate(wanted):
        if part == ">":
            return len(tokens) > index
        if index >= len(tokens) or part not in ("*", tokens[index]):
            return False
    return len(wanted) == len(tokens)


@dataclass(slots=True)
class _Entry:
    """A message as one durable keeps it until it is acked or termed."""

    message: Message
    deliveries: int = 0


@dataclass(eq=False, slots=True)
class _Consumer:
    """A bus's share in a durable: takes at most two batches, one in hand and one piling up."""

    batcher: MicroBatcher
    room: int
    held: dict[int, _Entry] = field(default_factory=dict)


class _Durable:
    """A durable consumer: what waits, what comes again, what is held by whom."""

    def __init__(self, spec: DurableSpec) -> None:
        self.spec = spec
        self.consumers: deque[_Consumer] = deque()
        self._fresh: deque[_Entry] = deque()
        self._again: deque[_Entry] = deque()
        self._held = 0
        self._ids = itertools.count()
        self._timers: set[asyncio.TimerHandle] = set()

    def add(self, message: Message) -> None:
        if any(subject_matches(pattern, message.subject) for pattern in self.spec.subjects):
            self._fresh.append(_Entry(message))
            self.hand_out()

    def hand_out(self) -> None:
        """Give what waits to the consumers in turn, each as much as it has room for; what comes again goes first."""
        while (self._again or self._fresh) and self._held < self.spec.max_ack_pending:
            consumer = self._next_with_room()
            if consumer is None:
                return
            entry = (self._again or self._fresh).popleft()
            self._deliver(entry, consumer)

    def leave(self, consumer: _Consumer) -> None:
        """A consumer stopped after it settled everything."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)

    def crash(self, consumer: _Consumer) -> None:
        """A consumer died: what it held comes again once ack_wait has passed."""
        self.leave(consumer)
        for key in list(consumer.held):
            self._later(self.spec.ack_wait, partial(self._come_again, consumer.held.pop(key), held=True))

    def lapse(self, consumer: _Consumer) -> None:
        """A consumer was silent for ack_wait: what it holds goes to others, and what it says of it counts no more."""
        for key in list(consumer.held):
            self._come_again(consumer.held.pop(key), held=True)

    def forget(self) -> None:
        """The durable is deleted: nothing of it comes any more."""
        self.consumers.clear()
        self._fresh.clear()
        self._again.clear()
        for timer in self._timers:
            timer.cancel()

    def _next_with_room(self) -> _Consumer | None:
        for _ in range(len(self.consumers)):
            consumer = self.consumers[0]
            self.consumers.rotate(-1)
            if len(consumer.held) < consumer.room:
                return consumer
        return None

    def _deliver(self, entry: _Entry, consumer: _Consumer) -> None:
        entry.deliveries += 1
        self._held += 1
        key = next(self._ids)
        consumer.held[key] = entry
        message = entry.message
        future = consumer.batcher.submit(
            Delivered(message.subject, message.data, dict(message.headers), entry.deliveries)
        )
        future.add_done_callback(partial(self._on_disposed, consumer, key))

    def _on_disposed(self, consumer: _Consumer, key: int, future: "asyncio.Future[Disposition]") -> None:
        entry = consumer.held.pop(key, None)
        if entry is None:
            return  # the consumer crashed before it could tell
        disposition = future.result()
        self._held -= 1
        if disposition.verdict == "nak":
            self._later(disposition.delay, partial(self._come_again, entry))
        self.hand_out()

    def _come_again(self, entry: _Entry, *, held: bool = False) -> None:
        self._held -= held
        self._again.append(entry)
        self.hand_out()

    def _later(self, delay: timedelta, callback: Any) -> None:
        # Never at once: a consumer that is leaving must be gone before what it hands back is handed out.
        timer: asyncio.TimerHandle

        def fire() -> None:
            self._timers.discard(timer)
            callback()

        timer = asyncio.get_running_loop().call_later(delay.total_seconds(), fire)
        self._timers.add(timer)


class MemoryBroker:
    """What the buses of one process share: streams, durables, and who answers which subject."""

    def __init__(self, *, streams: Sequence[StreamSpec] = STREAMS, durables: Sequence[DurableSpec] = DURABLES) -> None:
        self._streams = streams
        self._specs = durables
        self._durables: dict[str, _Durable] = {}
        self._kept: dict[str, list[Message]] = {}
        self._seen: dict[str, OrderedDict[str, float]] = {}
        self._stamps: dict[str, str] = {}
        self._made = itertools.count(1)
        self._consumers: dict[str, list[_Consumer]] = {}
        self._answering: dict[str, deque[tuple[MemoryBus, AskHandler]]] = {}
        self._listening: list[tuple[MemoryBus, str, Listener]] = []
        self.restore()

    def restore(self) -> tuple[str, ...]:
        """Make the streams and durables that are missing; returns which."""
        made = []
        for stream in self._streams:
            if stream.name not in self._stamps:
                self._kept[stream.name], self._seen[stream.name] = [], OrderedDict()
                self._stamps[stream.name] = str(next(self._made))
                made.append(f"created stream {stream.name}")
        for durable in self._specs:
            if not self.exists(durable):
                self.declare(durable)
                made.append(f"created durable {durable.name}")
        return tuple(made)

    def incarnations(self) -> Mapping[str, str]:
        return dict(self._stamps)

    def delete_stream(self, name: str) -> None:
        """Remove a stream with its messages and its durables, as a lost storage does."""
        del self._stamps[name], self._kept[name], self._seen[name]
        for durable in [held.spec for held in self._durables.values() if held.spec.stream == name]:
            self.delete(durable)

    def empty(self) -> None:
        """Drop every stream with all that it holds, and make it anew, as `libs.bus.declare.purge` does."""
        for name in list(self._stamps):
            self.delete_stream(name)
        self.restore()

    def declare(self, durable: DurableSpec) -> None:
        """Create a durable, from the first message of its stream; no change when it exists."""
        if durable.name in self._durables:
            return
        created = self._durables[durable.name] = _Durable(durable)
        created.consumers.extend(self._consumers.get(durable.name, ()))
        for message in self._kept[durable.stream]:
            created.add(message)

    def delete(self, durable: DurableSpec) -> None:
        """Remove a durable; its consumers get nothing until it is declared again."""
        self._durables.pop(durable.name).forget()

    def exists(self, durable: DurableSpec) -> bool:
        return durable.name in self._durables

    def publish(self, message: Message) -> None:
        """Store a message once per id within its stream's dedupe window, and hand it to the durables."""
        stream = self._stream_of(message.subject)
        now = asyncio.get_running_loop().time()
        for bus, pattern, listener in self._listening:
            if subject_matches(pattern, message.subject):
                bus.overhear(listener, message)
        seen = self._seen[stream.name]
        while seen and now - next(iter(seen.values())) > stream.dedupe_window.total_seconds():
            seen.popitem(last=False)
        if message.id in seen:
            return
        seen[message.id] = now
        self._kept[stream.name].append(message)
        for durable in self._durables.values():
            if durable.spec.stream == stream.name:
                durable.add(message)

    def join(self, spec: DurableSpec, consumer: _Consumer) -> None:
        self._consumers.setdefault(spec.name, []).append(consumer)
        durable = self._durables.get(spec.name)
        if durable is not None:
            durable.consumers.append(consumer)
            durable.hand_out()

    def leave(self, spec: DurableSpec, consumer: _Consumer, *, crashed: bool = False) -> None:
        if consumer in self._consumers.get(spec.name, ()):
            self._consumers[spec.name].remove(consumer)
        durable = self._durables.get(spec.name)
        if durable is not None:
            (durable.crash if crashed else durable.leave)(consumer)

    def lapse(self, spec: DurableSpec, consumer: _Consumer) -> None:
        durable = self._durables.get(spec.name)
        if durable is not None:
            durable.lapse(consumer)

    def answering(self, subject: str, bus: "MemoryBus", handler: AskHandler) -> None:
        self._answering.setdefault(subject, deque()).append((bus, handler))

    def listening(self, subject: str, bus: "MemoryBus", listener: Listener) -> None:
        self._listening.append((bus, subject, listener))

    def deafen(self, bus: "MemoryBus") -> None:
        """A bus overhears nothing any more."""
        self._listening = [each for each in self._listening if each[0] is not bus]

    def silence(self, bus: "MemoryBus") -> None:
        """A bus answers nothing any more."""
        for subject, answering in self._answering.items():
            self._answering[subject] = deque(each for each in answering if each[0] is not bus)

    def responder(self, subject: str) -> "tuple[MemoryBus, AskHandler]":
        """Who answers next.

        Raises:
            contracts.errors.Unavailable: nobody does.
        """
        answering = self._answering.get(subject)
        if not answering:
            raise Unavailable("bus.no_responder", f"nobody answers {subject} now; ask again")
        answering.rotate(-1)
        return answering[-1]

    def _stream_of(self, subject: str) -> StreamSpec:
        for stream in self._streams:
            if stream.name in self._stamps and any(subject_matches(pattern, subject) for pattern in stream.subjects):
                return stream
        raise Unavailable("bus.unpublished", f"no stream takes {subject}; declare the streams and durables")


class MemoryBus:
    """One service's connection to a `MemoryBroker`."""

    def __init__(self, broker: MemoryBroker, *, name: str = "memory") -> None:
        self._broker = broker
        self._name = name
        self._subscribed: list[tuple[DurableSpec, BatchHandler, int]] = []
        self._answers: list[tuple[str, AskHandler]] = []
        self._listeners: list[tuple[str, Listener]] = []
        self._consumers: list[tuple[DurableSpec, _Consumer]] = []
        self._asks: set[asyncio.Task[bytes | None]] = set()
        self._started = False

    def subscribe(self, durable: DurableSpec, handler: BatchHandler, *, batch_max: int = 200) -> None:
        """See `Bus.subscribe`."""
        self._subscribed.append((durable, handler, batch_max))

    def answer(self, subject: str, handler: AskHandler) -> None:
        """See `Bus.answer`."""
        self._answers.append((subject, handler))

    def listen(self, subject: str, listener: Listener) -> None:
        """See `Bus.listen`."""
        self._listeners.append((subject, listener))

    async def start(self) -> None:
        """See `Bus.start`. There always is a server."""
        self._started = True
        for durable, handler, batch_max in self._subscribed:
            batcher = MicroBatcher(handler, name=durable.name, batch_max=batch_max)
            consumer = _Consumer(batcher, room=2 * batch_max)
            self._consumers.append((durable, consumer))
            self._broker.join(durable, consumer)
        for subject, answer in self._answers:
            self._broker.answering(subject, self, answer)
        for subject, listener in self._listeners:
            self._broker.listening(subject, self, listener)

    async def publish(self, messages: Sequence[Message]) -> None:
        """See `Bus.publish`."""
        check_sizes(messages)
        self._check_started()
        for message in messages:
            self._broker.publish(message)

    async def ask(self, subject: str, data: bytes, *, headers: Mapping[str, str], timeout: timedelta) -> bytes:
        """See `Bus.ask`."""
        self._check_started()
        bus, handler = self._broker.responder(subject)
        asked = bus.carry_out(_answered(handler, subject, data, headers))
        # Not cancelled by a timeout: the ask goes on over there, as it does on NATS.
        await asyncio.wait({asked}, timeout=timeout.total_seconds())
        reply = asked.result() if asked.done() and not asked.cancelled() else None
        if reply is None:
            raise Unavailable(
                "bus.no_reply",
                f"{subject} was not answered in {timeout.total_seconds():g} s; ask again with the same id",
            )
        return reply

    def carry_out(self, ask: Coroutine[Any, Any, bytes | None]) -> "asyncio.Task[bytes | None]":
        """Answer in this bus's name: its end waits for it, or takes it along."""
        task = asyncio.create_task(ask, name=f"ask of {self._name}")
        self._asks.add(task)
        task.add_done_callback(self._asks.discard)
        return task

    def overhear(self, listener: Listener, message: Message) -> None:
        """Tell a listener in the loop's next turn: who publishes does not wait for who overhears."""

        def tell() -> None:
            try:
                listener(message.subject, message.data)
            except Exception as error:
                _log.error("listener failed", subject=message.subject, error=type(error).__name__)

        asyncio.get_running_loop().call_soon(tell)

    async def usable(self) -> bool:
        """See `Bus.usable`."""
        return self._started and all(self._broker.exists(durable) for durable, _, _ in self._subscribed)

    @property
    def held(self) -> int:
        """How many messages were taken and have no disposition yet."""
        return sum(len(consumer.held) for _, consumer in self._consumers)

    async def incarnations(self) -> Mapping[str, str]:
        """See `Bus.incarnations`."""
        self._check_started()
        return self._broker.incarnations()

    async def redeclare(self) -> tuple[str, ...]:
        """See `Bus.redeclare`."""
        self._check_started()
        return self._broker.restore()

    async def overruns(self) -> frozenset[str]:
        """See `Bus.overruns`. Nothing is ever dropped here."""
        self._check_started()
        return frozenset()

    async def quiesce(self) -> None:
        """See `Bus.quiesce`."""
        self._broker.silence(self)
        for _, consumer in self._consumers:
            consumer.room = 0
        await asyncio.gather(*(consumer.batcher.drain() for _, consumer in self._consumers))
        await asyncio.gather(*self._asks, return_exceptions=True)
        await asyncio.sleep(0)  # the loop's next turn settles what the batchers have just told
        for durable, consumer in self._consumers:
            self._broker.leave(durable, consumer)
        self._consumers.clear()

    async def stop(self) -> None:
        """See `Bus.stop`."""
        await self.quiesce()
        self._broker.deafen(self)
        self._started = False

    async def crash(self) -> None:
        """End as `kill -9` ends a process: nothing is settled, replied or handed back."""
        self._started = False
        self._broker.silence(self)
        self._broker.deafen(self)
        for durable, consumer in self._consumers:
            self._broker.leave(durable, consumer, crashed=True)
        for task in self._asks:
            task.cancel()
        await asyncio.gather(*(consumer.batcher.drain(timedelta(0)) for _, consumer in self._consumers))
        self._consumers.clear()

    def lapse(self) -> None:
        """Let ack_wait pass for everything in hand, as for a process that is frozen or slow: it is handed out again."""
        for durable, consumer in self._consumers:
            self._broker.lapse(durable, consumer)

    def _check_started(self) -> None:
        if not self._started:
            raise Unavailable(NOT_CONNECTED, f"the bus of {self._name} is not started, or was stopped")


async def _answered(handler: AskHandler, subject: str, data: bytes, headers: Mapping[str, str]) -> bytes | None:
    """The reply; None when the handler raised, which leaves its asker without one."""
    try:
        return await handler(subject, data, dict(headers))
    except Exception as error:
        _log.error("ask left unanswered", subject=subject, error=type(error).__name__)
        return None
