"""The port of the bus, in every adapter alike."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, Protocol
from uuid import UUID

from contracts.subjects import DurableSpec


@dataclass(frozen=True, slots=True)
class Message:
    """Something to publish. `id` is what the dedupe window knows it by; `headers` carry the trace context."""

    subject: str
    data: bytes
    id: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message as a durable hands it out. `deliveries` counts from 1."""

    subject: str
    data: bytes
    headers: Mapping[str, str]
    deliveries: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A part of a message that was not done: why, and the message that would have this part alone done again."""

    error: Exception
    data: bytes
    stream_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Disposition:
    """What becomes of a message: `ack` it, `nak` it to come again after `delay`, or `term` it for good.

    `error` is why, where the whole message has one reason; `failures` are the parts of it that were not done. What is
    acked may have some: it comes again by another way.
    """

    verdict: Literal["ack", "nak", "term"]
    delay: timedelta = timedelta(0)
    error: Exception | None = field(default=None, compare=False)
    failures: tuple[Failure, ...] = field(default=(), compare=False)


ACK = Disposition("ack")

NOT_CONNECTED = "bus.not_connected"
"""The code of what fails for want of a connection: the adapter itself tells of that, once."""

BatchHandler = Callable[[Sequence[Delivered]], Awaitable[Sequence[Disposition]]]
"""Handles what has piled up; answers one disposition per message. An exception is mapped by `disposition.of`."""

AskHandler = Callable[[str, bytes, Mapping[str, str]], Awaitable[bytes]]
"""Answers an ask: (subject, data, headers) → reply. Never raises: errors are typed replies."""

Listener = Callable[[str, bytes], None]
"""Overhears (subject, data). Returns at once."""


class Bus(Protocol):
    """One service's connection. `subscribe`, `answer` and `listen` come before `start`."""

    def subscribe(self, durable: DurableSpec, handler: BatchHandler, *, batch_max: int = 200) -> None:
        """Consume a durable that exists; the adapter never creates it.

        Messages that arrive while a batch is handled make the next batch: no linger, no timer. At most one
        batch of a durable is handled at a time in this process.
        """
        ...

    def answer(self, subject: str, handler: AskHandler) -> None:
        """Answer asks on a subject, in a queue group of its own name, many at a time."""
        ...

    def listen(self, subject: str, listener: Listener) -> None:
        """Overhear what is published on a subject, `*` and `>` included, until `stop`.

        Best effort: nothing is kept, acked or repeated, and what is published while the connection is down is never
        heard. Every bus that listens hears each message.
        """
        ...

    async def start(self) -> None:
        """Connect and begin. Raises `contracts.errors.Unavailable` when there is no server."""
        ...

    async def publish(self, messages: Sequence[Message]) -> None:
        """Publish to JetStream and wait for every ack.

        Raises:
            contracts.errors.Unavailable: at least one ack did not come; publishing again is harmless.
        """
        ...

    async def ask(self, subject: str, data: bytes, *, headers: Mapping[str, str], timeout: timedelta) -> bytes:
        """Request and reply on core NATS.

        Raises:
            contracts.errors.Unavailable: nobody listens, or no reply within `timeout`.
        """
        ...

    async def usable(self) -> bool:
        """Whether the connection is up and every subscribed durable exists."""
        ...

    async def incarnations(self) -> Mapping[str, str]:
        """When each declared stream was made: stream → stamp. Streams that are missing are absent.

        A stream that was deleted and made again, or whose storage was lost, has another stamp.

        Raises:
            contracts.errors.Unavailable: the server does not say.
        """
        ...

    async def redeclare(self) -> tuple[str, ...]:
        """Make the declared streams and durables that are missing, and return which; leave the others as they are.

        Raises:
            contracts.errors.Unavailable: the server does not answer.
            contracts.errors.Broken: it refuses a declaration, with its reason.
        """
        ...

    async def overruns(self) -> frozenset[str]:
        """Durables whose stream dropped messages (by age or size) before they were consumed.

        Each loss is told once, when the durable is consumed again: what follows from it would be lost before that.

        Raises:
            contracts.errors.Unavailable: the server does not say.
        """
        ...

    async def quiesce(self) -> None:
        """Take no more messages and asks: finish the batches in hand and hand back the rest. Publishing goes on."""
        ...

    async def stop(self) -> None:
        """Quiesce, then disconnect."""
        ...
