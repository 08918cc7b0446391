"""Streams at their limits, on a real nats-server: what is dropped unconsumed is told, what is refused is not taken."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy

from contracts.errors import Unavailable
from libs.bus.declare import declare
from libs.bus.jetstream import JetStreamBus
from tests.conformance.test_bus import ALL, RUNS, SETTINGS, STREAM, Recorder, message, until


def bus_at(url: str) -> JetStreamBus:
    return JetStreamBus(url, name="test", settings=SETTINGS, streams=[STREAM], durables=[RUNS, ALL])


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[JetStreamBus]:
    await declare(nats_url, streams=[STREAM], durables=[RUNS, ALL])
    bus = bus_at(nats_url)
    await bus.start()
    yield bus
    await bus.stop()


@pytest.fixture
async def js(nats_url: str) -> AsyncIterator[JetStreamContext]:
    client = await nats.connect(nats_url)
    yield client.jetstream()
    await client.close()


async def limit(js: JetStreamContext, messages: int, discard: DiscardPolicy) -> None:
    found = (await js.stream_info(STREAM.name)).config
    await js.update_stream(replace(found, max_msgs=messages, discard=discard))


async def test_what_a_stream_dropped_unconsumed_is_told_once_it_is_consumed_again(
    nats_url: str, bus: JetStreamBus, js: JetStreamContext
) -> None:
    await bus.publish([message("a"), message("rare", subject="history.run.started")])
    assert await bus.overruns() == frozenset()
    await limit(js, 3, DiscardPolicy.OLD)
    await bus.publish([message(str(n)) for n in range(10)])
    assert await bus.overruns() == frozenset(), "nobody consumes: what follows would be lost as well"

    seen = Recorder()
    consumer = bus_at(nats_url)
    consumer.subscribe(ALL, seen)
    await consumer.start()
    await until(lambda: seen.texts == ["7", "8", "9"])
    told: set[str] = set()
    async with asyncio.timeout(10):
        while not told:
            told |= await bus.overruns()
    assert told == {ALL.name}, "the other durable is still not consumed"
    assert await bus.overruns() == frozenset()
    await consumer.stop()


async def test_what_is_dropped_after_it_was_consumed_is_no_loss(
    nats_url: str, bus: JetStreamBus, js: JetStreamContext
) -> None:
    seen = Recorder()
    consumer = bus_at(nats_url)
    consumer.subscribe(ALL, seen)
    consumer.subscribe(RUNS, Recorder())
    await consumer.start()
    await limit(js, 3, DiscardPolicy.OLD)
    for n in range(10):
        await bus.publish([message(str(n))])
        await until(lambda n=n: len(seen.texts) == n + 1)  # type: ignore[misc]
        assert await bus.overruns() == frozenset()
    await consumer.stop()


async def test_a_full_stream_refuses_and_what_it_refused_can_be_published_again(
    bus: JetStreamBus, js: JetStreamContext
) -> None:
    await limit(js, 1, DiscardPolicy.NEW)
    await bus.publish([message("a")])
    refused = message("b")
    with pytest.raises(Unavailable) as full:
        await bus.publish([refused])
    assert full.value.code == "bus.unpublished"
    assert await bus.redeclare() == (), "limits that somebody set are not this bus's to change"
    await limit(js, -1, DiscardPolicy.OLD)
    await bus.publish([refused])
    assert (await js.stream_info(STREAM.name)).state.messages == 2
