"""Streams and durables: what is declared is what the server has, however often it is declared."""

from dataclasses import replace
from datetime import timedelta

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType

from contracts.errors import Broken, Unavailable
from contracts.subjects import DURABLES, STREAMS
from libs.bus.declare import declare


async def test_everything_is_declared_once_as_it_is_written(nats_url: str) -> None:
    changes = await declare(nats_url)
    assert sorted(changes) == sorted(
        [*(f"created stream {s.name}" for s in STREAMS), *(f"created durable {d.name}" for d in DURABLES)]
    )
    assert await declare(nats_url) == ()
    client = await nats.connect(nats_url)
    for stream in STREAMS:
        config = (await client.jsm().stream_info(stream.name)).config
        assert (config.storage, config.retention) == (StorageType.FILE, RetentionPolicy.LIMITS)
        assert tuple(config.subjects or ()) == stream.subjects
        assert (config.max_age, config.max_bytes) == (stream.max_age.total_seconds(), stream.max_bytes)
        assert config.duplicate_window == stream.dedupe_window.total_seconds()
    for durable in DURABLES:
        found = (await client.jsm().consumer_info(durable.stream, durable.name)).config
        assert tuple(found.filter_subjects or ()) == durable.subjects
        assert (found.ack_policy, found.max_deliver) == (AckPolicy.EXPLICIT, -1)
        assert (found.ack_wait, found.max_ack_pending) == (durable.ack_wait.total_seconds(), durable.max_ack_pending)
        assert found.deliver_subject is None
    await client.close()


async def test_what_changed_is_updated_and_what_was_acked_stays_acked(nats_url: str) -> None:
    stream, durable = STREAMS[0], DURABLES[0]
    await declare(nats_url, streams=[stream], durables=[durable])
    client = await nats.connect(nats_url)
    js = client.jetstream()
    await js.publish("history.run.created", b"a")
    subscription = await js.pull_subscribe_bind(durable.name, stream.name)
    await (await subscription.fetch(1))[0].ack_sync()
    changed = await declare(
        nats_url,
        streams=[replace(stream, max_age=timedelta(hours=2))],
        durables=[replace(durable, ack_wait=timedelta(seconds=7), subjects=("history.run.created", "history.run.x"))],
    )
    assert changed == (
        f"updated stream {stream.name}: max_age",
        f"updated durable {durable.name}: filter_subjects, ack_wait",
    )
    info = await js.consumer_info(stream.name, durable.name)
    assert (info.config.ack_wait, info.ack_floor.stream_seq) == (7, 1)
    assert (await js.stream_info(stream.name)).state.messages == 1
    await client.close()


async def test_a_durable_with_one_subject_in_the_older_form_is_brought_into_ours(nats_url: str) -> None:
    stream = STREAMS[0]
    durable = replace(DURABLES[0], subjects=("history.run.created",))
    await declare(nats_url, streams=[stream], durables=[])
    client = await nats.connect(nats_url)
    await client.jsm().add_consumer(
        stream.name, ConsumerConfig(name=durable.name, durable_name=durable.name, filter_subject="history.run.created")
    )
    await declare(nats_url, streams=[stream], durables=[durable])
    assert await declare(nats_url, streams=[stream], durables=[durable]) == ()
    await client.close()


async def test_a_declaration_that_cannot_be_is_broken_with_the_servers_reason(nats_url: str) -> None:
    await declare(nats_url, streams=[STREAMS[0]], durables=[])
    with pytest.raises(Broken, match="overlap"):
        await declare(nats_url, streams=[replace(STREAMS[0], name="OTHER")], durables=[])


async def test_without_a_server_nothing_is_declared() -> None:
    with pytest.raises(Unavailable):
        await declare("nats://127.0.0.1:9")
