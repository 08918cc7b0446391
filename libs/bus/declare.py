"""Makes the server's streams and durables what `contracts.subjects` says. Run by `migrate`, and safe to run again."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import nats
import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, NotFoundError

from contracts.errors import Broken, Unavailable
from contracts.subjects import DURABLES, STREAMS, DurableSpec, StreamSpec

_CONNECT_SECONDS_MAX: Final = 5
_CONNECT_TRIES_AGAIN_MAX: Final = 2
_CONNECT_PAUSE_SECONDS: Final = 1

_NO_ROOM: Final = frozenset({10023, 10028, 10047})
"""The server's codes for a store that is full or too small now."""


async def declare(
    url: str,
    *,
    streams: Sequence[StreamSpec] = STREAMS,
    durables: Sequence[DurableSpec] = DURABLES,
    user: str | None = None,
    password: str | None = None,
) -> tuple[str, ...]:
    """Create or update every stream and durable; returns what was changed, empty when all was right already.

    Nothing is deleted. What was stored and what was acknowledged stays.

    Raises:
        contracts.errors.Unavailable: the server does not answer.
        contracts.errors.Broken: the server refuses a declaration, with its reason.
    """
    async with _connected(url, user=user, password=password) as client:
        js = client.jetstream()
        changed = [change for stream in streams for change in await _declare_stream(js, stream)]
        changed += [change for durable in durables for change in await _declare_durable(js, durable)]
    return tuple(changed)


async def purge(
    url: str, *, streams: Sequence[StreamSpec] = STREAMS, durables: Sequence[DurableSpec] = DURABLES
) -> tuple[str, ...]:
    """Drop every declared stream with all that it holds, and make it anew; returns one line for each.

    Raises as `declare` does.
    """
    async with _connected(url) as client:
        js = client.jetstream()
        for stream in streams:
            with suppress(NotFoundError):
                await js.delete_stream(stream.name)
            await _declare_stream(js, stream)
        for durable in durables:
            await _declare_durable(js, durable)
    return tuple(f"emptied stream {stream.name}" for stream in streams)


@asynccontextmanager
async def _connected(url: str, *, user: str | None = None, password: str | None = None) -> AsyncIterator[Client]:
    try:
        client = await nats.connect(
            url,
            name="declare",
            user=user,
            password=password,
            allow_reconnect=False,
            max_reconnect_attempts=_CONNECT_TRIES_AGAIN_MAX,  # also counts before the first connection
            reconnect_time_wait=_CONNECT_PAUSE_SECONDS,
            connect_timeout=_CONNECT_SECONDS_MAX,
            error_cb=_said_by_the_exception,
        )
    except (OSError, nats.errors.Error, TimeoutError) as error:
        raise Unavailable("bus.unreachable", f"no NATS server takes declarations: {type(error).__name__}") from error
    try:
        with answered():
            yield client
    finally:
        await client.close()


async def restore(
    js: JetStreamContext, *, streams: Sequence[StreamSpec], durables: Sequence[DurableSpec]
) -> tuple[str, ...]:
    """Create what is missing, on a connection that exists; returns what that was.

    What exists is left as it is, even when it differs: a newer release may have declared it.

    Raises:
        contracts.errors.Unavailable: the server does not answer.
        contracts.errors.Broken: the server refuses a declaration, with its reason.
    """
    with answered():
        made = [change for stream in streams for change in await _declare_stream(js, stream, update=False)]
        return (*made, *[c for durable in durables for c in await _declare_durable(js, durable, update=False)])


@contextmanager
def answered() -> Iterator[None]:
    """What JetStream's management interface raises, in our words.

    Raises:
        contracts.errors.Unavailable: it does not answer.
        contracts.errors.Broken: it refuses, with its reason.
    """
    try:
        yield
    except APIError as error:
        if error.err_code in _NO_ROOM:
            raise Unavailable(
                "bus.no_room", f"JetStream has no room: {error.description}; give its disk, or its limits, more of it"
            ) from error
        if _passing(error):
            raise Unavailable("bus.no_jetstream", f"JetStream does not answer: {error.description}") from error
        raise Broken("bus.declaration_refused", f"the server refused a declaration: {error.description}") from error
    except (nats.errors.Error, TimeoutError) as error:
        raise Unavailable("bus.unreachable", f"the server stopped answering: {type(error).__name__}") from error


def _passing(error: APIError) -> bool:
    if error.err_code is None:
        return error.code is not None and error.code >= 500
    return error.code == 503


async def _said_by_the_exception(_error: Exception) -> None:
    """nats-py also logs what it raises; once is enough."""


async def _declare_stream(js: JetStreamContext, spec: StreamSpec, *, update: bool = True) -> Iterable[str]:
    wanted: dict[str, Any] = {
        "subjects": list(spec.subjects),
        "max_age": spec.max_age.total_seconds(),
        "max_bytes": spec.max_bytes,
        "duplicate_window": spec.dedupe_window.total_seconds(),
        "discard": DiscardPolicy.OLD,
    }
    try:
        found = (await js.stream_info(spec.name)).config
    except NotFoundError:
        # Storage and retention can only be chosen at birth. LIMITS: several durables read the same messages.
        await js.add_stream(
            StreamConfig(name=spec.name, storage=StorageType.FILE, retention=RetentionPolicy.LIMITS, **wanted)
        )
        return (f"created stream {spec.name}",)
    different = _different(found, wanted) if update else []
    if not different:
        return ()
    await js.update_stream(replace(found, **wanted))
    return (f"updated stream {spec.name}: {', '.join(different)}",)


async def _declare_durable(js: JetStreamContext, spec: DurableSpec, *, update: bool = True) -> Iterable[str]:
    wanted: dict[str, Any] = {
        # One subject goes into `filter_subjects` too: the server keeps the two forms apart and refuses both at once.
        "filter_subjects": list(spec.subjects),
        "filter_subject": None,
        "ack_wait": spec.ack_wait.total_seconds(),
        "max_ack_pending": spec.max_ack_pending,
        "max_deliver": -1,
    }
    try:
        found = (await js.consumer_info(spec.stream, spec.name)).config
    except NotFoundError:
        await js.add_consumer(
            spec.stream,
            ConsumerConfig(
                name=spec.name,
                durable_name=spec.name,
                ack_policy=AckPolicy.EXPLICIT,
                deliver_policy=DeliverPolicy.ALL,
                **wanted,
            ),
        )
        return (f"created durable {spec.name}",)
    different = _different(found, wanted) if update else []
    if not different:
        return ()
    await js.add_consumer(spec.stream, replace(found, **wanted))
    return (f"updated durable {spec.name}: {', '.join(different)}",)


def _different(found: object, wanted: dict[str, Any]) -> list[str]:
    return [name for name, value in wanted.items() if getattr(found, name) != value]
