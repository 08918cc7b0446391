"""The bus on NATS: the connection by FastStream, durables by pull loops, asks and publishing by nats-py."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import nats.errors
import nats.js.errors
import structlog
from faststream.nats import NatsBroker
from faststream.security import SASLPlaintext
from nats.aio.client import Client, Server
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from contracts.errors import Broken, Unavailable
from contracts.subjects import DURABLES, STREAMS, DurableSpec, StreamSpec
from libs.bus.asking import Answered, Answers
from libs.bus.declare import answered, restore
from libs.bus.limits import check_sizes
from libs.bus.microbatch import MicroBatcher
from libs.bus.overrun import Overruns, Reading
from libs.bus.port import NOT_CONNECTED, AskHandler, BatchHandler, Listener, Message
from libs.bus.pull import DurablePull

MESSAGE_ID: Final = "Nats-Msg-Id"

_RECONNECT_FIRST_SECONDS: Final = 0.05
_RECONNECT_SECONDS_MAX: Final = 2.0
_USABLE_TIMEOUT: Final = timedelta(seconds=1)

_log = structlog.get_logger(component="bus.jetstream")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The NATS user of a service. Each has only its own subjects."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class JetStreamSettings:
    """Times and limits of one connection. `inbox_prefix` is the one that the service's NATS user may read."""

    connect_timeout: timedelta = timedelta(seconds=5)
    publish_timeout: timedelta = timedelta(seconds=5)
    stop_timeout: timedelta = timedelta(seconds=10)
    heartbeat: timedelta = timedelta(seconds=5)
    asks_at_once_max: int = 256
    inbox_prefix: str = "_INBOX"


@dataclass(frozen=True, slots=True)
class _Consumption:
    durable: DurableSpec
    handler: BatchHandler
    batch_max: int


class _Broker(NatsBroker):
    """FastStream's broker, whose connection is never given up.

    FastStream raises some errors (an authorisation timeout or too many connections, as after a server's restart)
    out of the client's error callback, which ends the client's task that reconnects: it would stay down for ever.
    """

    def _log_connection_broken(self, error_cb: Any = None) -> Any:
        return error_cb


class JetStreamBus:
    """One service's connection to NATS. Binds to streams and durables; `redeclare` alone makes those that are missing.

    A lost connection is restored for ever, with backoff and one log line; meanwhile `publish` and `ask` raise
    `Unavailable` after their timeouts and `usable` is false.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        credentials: Credentials | None = None,
        settings: JetStreamSettings | None = None,
        streams: Sequence[StreamSpec] = STREAMS,
        durables: Sequence[DurableSpec] = DURABLES,
    ) -> None:
        self._url = url
        self._name = name
        self._settings = settings or JetStreamSettings()
        self._consumptions: list[_Consumption] = []
        self._listeners: list[tuple[str, Listener]] = []
        self._answered: list[Answered] = []
        self._answers: Answers | None = None
        self._pulls: list[DurablePull] = []
        self._client: Client | None = None
        self._js: JetStreamContext | None = None
        self._streams = streams
        self._durables = durables
        self._overruns = Overruns()
        self._quiescing: asyncio.Task[None] | None = None
        self._stopping = False
        self._publishing = 0
        self._published = asyncio.Event()
        self._published.set()
        self._last_error = ""
        self._broker = _Broker(
            [part.strip() for part in url.split(",")],
            name=name,
            security=SASLPlaintext(username=credentials.user, password=credentials.password) if credentials else None,
            max_reconnect_attempts=-1,
            connect_timeout=max(1, int(self._settings.connect_timeout.total_seconds())),
            reconnect_to_server_handler=_next_server,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
            inbox_prefix=self._settings.inbox_prefix,
            graceful_timeout=self._settings.stop_timeout.total_seconds(),
            drain_timeout=max(1, int(self._settings.stop_timeout.total_seconds())),
            logger=None,
            apply_types=False,
        )

    def subscribe(self, durable: DurableSpec, handler: BatchHandler, *, batch_max: int = 200) -> None:
        """See `Bus.subscribe`."""
        self._consumptions.append(_Consumption(durable, handler, batch_max))

    def answer(self, subject: str, handler: AskHandler) -> None:
        """See `Bus.answer`. At most `asks_at_once_max` of a subject are answered at once; the rest waits."""
        self._answered.append(Answered(subject, handler))

    def listen(self, subject: str, listener: Listener) -> None:
        """See `Bus.listen`."""
        self._listeners.append((subject, listener))

    async def start(self) -> None:
        """See `Bus.start`. A durable that does not exist yet is no error: it is tried again until it does."""
        try:
            async with asyncio.timeout(self._settings.connect_timeout.total_seconds()):
                self._client = await self._broker.connect()
        except (TimeoutError, OSError, nats.errors.Error) as error:
            raise Unavailable(
                "bus.unreachable",
                f"no NATS server answers at {_without_secrets(self._url)}: {self._last_error or type(error).__name__}; "
                "start it, or correct the address and credentials",
            ) from error
        self._js = self._client.jetstream()
        self._answers = Answers(self._client, self._answered, at_once_max=self._settings.asks_at_once_max)
        await self._answers.start()
        for subject, listener in self._listeners:
            await self._client.subscribe(subject, cb=_overhearing(listener))
        self._pulls = [
            DurablePull(
                self._client,
                each.durable,
                MicroBatcher(each.handler, name=each.durable.name, batch_max=each.batch_max),
                batch_max=each.batch_max,
                heartbeat=self._settings.heartbeat,
            )
            for each in self._consumptions
        ]
        await asyncio.gather(*(pull.start() for pull in self._pulls))

    async def publish(self, messages: Sequence[Message]) -> None:
        """See `Bus.publish`.

        Raises:
            contracts.errors.Broken: a message is larger than an envelope may be; nothing was sent.
        """
        check_sizes(messages)
        self._publishing += 1
        self._published.clear()
        try:
            await self._publish(messages)
        finally:
            self._publishing -= 1
            if not self._publishing:
                self._published.set()

    async def _publish(self, messages: Sequence[Message]) -> None:
        js = self._jetstream()
        acks: list[asyncio.Future[Any]] = []
        try:
            async with asyncio.timeout(self._settings.publish_timeout.total_seconds()):
                for message in messages:
                    headers = {**message.headers, MESSAGE_ID: message.id}
                    acks.append(await js.publish_async(message.subject, message.data, headers=headers))
                await asyncio.gather(*acks)
        except (TimeoutError, nats.errors.Error) as error:
            missing = sum(1 for ack in acks if not ack.done() or ack.cancelled() or ack.exception() is not None)
            raise Unavailable(
                "bus.unpublished" if self._connected().is_connected else NOT_CONNECTED,
                f"{missing + len(messages) - len(acks)} of {len(messages)} messages were not acknowledged "
                f"({type(error).__name__}); publish them again",
            ) from error
        finally:
            for ack in acks:
                ack.cancel()

    async def ask(self, subject: str, data: bytes, *, headers: Mapping[str, str], timeout: timedelta) -> bytes:
        """See `Bus.ask`."""
        client = self._connected()
        if len(data) > client.max_payload:
            raise Broken(
                "bus.message_too_large", f"an ask on {subject} has {len(data)} bytes, more than the server takes"
            )
        try:
            reply = await client.request(subject, data, timeout=timeout.total_seconds(), headers=dict(headers) or None)
        except nats.errors.NoRespondersError as error:
            raise Unavailable("bus.no_responder", f"nobody answers {subject} now; ask again") from error
        except (TimeoutError, nats.errors.Error) as error:
            raise Unavailable(
                "bus.no_reply",
                f"{subject} was not answered in {timeout.total_seconds():g} s; ask again with the same id",
            ) from error
        return reply.data

    async def usable(self) -> bool:
        """See `Bus.usable`."""
        client = self._client
        if client is None or self._stopping or not client.is_connected:
            return False
        if not all(pull.bound for pull in self._pulls):
            return False
        jsm = client.jsm(timeout=_USABLE_TIMEOUT.total_seconds())
        try:
            await asyncio.gather(
                *(jsm.consumer_info(each.durable.stream, each.durable.name) for each in self._consumptions)
            )
        except (nats.errors.Error, TimeoutError):
            return False
        return True

    @property
    def held(self) -> int:
        """How many messages were taken and have no disposition on the wire yet."""
        return sum(pull.held for pull in self._pulls)

    async def incarnations(self) -> Mapping[str, str]:
        """See `Bus.incarnations`."""
        js, stamps = self._management(), {}
        with answered():
            for spec in self._streams:
                with suppress(nats.js.errors.NotFoundError):
                    created = (await js.stream_info(spec.name)).created
                    assert created is not None, "every server that knows the stream says when it was made"
                    stamps[spec.name] = created.isoformat()
        return stamps

    async def redeclare(self) -> tuple[str, ...]:
        """See `Bus.redeclare`."""
        return await restore(self._management(), streams=self._streams, durables=self._durables)

    async def overruns(self) -> frozenset[str]:
        """See `Bus.overruns`."""
        js, lost = self._management(), set()
        with answered():
            for stream in self._streams:
                with suppress(nats.js.errors.NotFoundError):
                    state = (await js.stream_info(stream.name)).state
                    for durable in (d for d in self._durables if d.stream == stream.name):
                        info = await js.consumer_info(stream.name, durable.name)
                        reading = Reading(
                            first=state.first_seq,
                            last=state.last_seq,
                            settled_to=info.ack_floor.stream_seq if info.ack_floor else 0,
                            idle=not info.num_pending and not info.num_ack_pending,
                            consumed=bool(info.num_waiting),
                        )
                        if self._overruns.take(durable.name, reading):
                            lost.add(durable.name)
        return frozenset(lost)

    async def quiesce(self) -> None:
        """See `Bus.quiesce`. Takes at most a few times `stop_timeout`."""
        if self._client is None:
            return
        if self._quiescing is None:
            self._quiescing = asyncio.create_task(self._take_no_more(), name=f"quiescing of {self._name}")
        await asyncio.shield(self._quiescing)

    async def _take_no_more(self) -> None:
        """Also wait for what is being published, which takes `publish_timeout` at most."""
        if self._answers is not None:
            await self._answers.stop(self._settings.stop_timeout)
        await asyncio.gather(*(pull.stop(self._settings.stop_timeout) for pull in self._pulls))
        await self._published.wait()

    async def stop(self) -> None:
        """See `Bus.stop`. Takes at most a few times `stop_timeout`."""
        if self._client is None or self._stopping:
            return
        self._stopping = True
        await self.quiesce()
        try:
            async with asyncio.timeout(self._settings.stop_timeout.total_seconds()):
                await self._broker.stop()
        except (nats.errors.Error, OSError) as error:  # a timeout is one, and so is a connection that was reset
            _log.warning("connection closed without a drain", bus=self._name, error=type(error).__name__)
            with suppress(OSError):  # a server that is gone has reset what we close
                await self._client.close()

    def _jetstream(self) -> JetStreamContext:
        self._connected()
        assert self._js is not None, "made by start, with the connection"
        return self._js

    def _management(self) -> JetStreamContext:
        """For questions whose answer is worth nothing later: they do not wait for a connection."""
        if not self._connected().is_connected:
            raise Unavailable(NOT_CONNECTED, f"the bus of {self._name} has no connection now")
        return self._jetstream()

    def _connected(self) -> Client:
        if self._client is None or self._client.is_closed:
            raise Unavailable(NOT_CONNECTED, f"the bus of {self._name} is not started, or was stopped")
        return self._client

    async def _on_error(self, error: Exception) -> None:
        reason = f"{type(error).__name__}: {_without_secrets(str(error))}"
        # By the loss of the connection, or by the exception that whoever publishes gets.
        told = isinstance(error, (OSError, nats.errors.StaleConnectionError, nats.js.errors.APIError))
        if self._client is not None and self._client.is_connected and not told and reason != self._last_error:
            _log.warning("bus error", bus=self._name, reason=reason)
        self._last_error = reason

    async def _on_disconnected(self) -> None:
        if self._stopping:
            return
        _log.warning("bus connection lost, connecting again", bus=self._name)
        for pull in self._pulls:
            pull.link_lost()

    async def _on_reconnected(self) -> None:
        self._last_error = ""
        _log.info("bus connection restored", bus=self._name)
        for pull in self._pulls:
            pull.link_restored()

    async def _on_closed(self) -> None:
        if not self._stopping and self._client is not None:
            _log.error("bus connection closed by the server, restart this process", bus=self._name)


def _overhearing(listener: Listener) -> Callable[[Msg], Awaitable[None]]:
    async def on_message(msg: Msg) -> None:
        try:
            listener(msg.subject, msg.data)
        except Exception as error:
            _log.error("listener failed", subject=msg.subject, error=type(error).__name__)

    return on_message


def _next_server(servers: list[Server], _info: dict[str, Any]) -> tuple[Server, float]:
    """The server that was tried least, after a pause that doubles."""
    chosen = min(servers, key=lambda server: server.reconnects)
    doublings = min(chosen.reconnects, 10)
    return chosen, min(_RECONNECT_FIRST_SECONDS * (1 << doublings), _RECONNECT_SECONDS_MAX)


def _without_secrets(url: str) -> str:
    return re.sub(r"(?<=//)[^/@\s]+@", "", url)
