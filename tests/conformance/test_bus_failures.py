"""What the bus does when a process, a server or a durable is lost."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path

import nats
import pytest
from structlog.testing import capture_logs

from contracts.errors import Unavailable
from contracts.subjects import DurableSpec, StreamSpec
from libs.bus.declare import declare
from libs.bus.jetstream import Credentials, JetStreamBus, JetStreamSettings
from libs.bus.memory import MemoryBroker, MemoryBus
from libs.bus.port import ACK, Delivered, Disposition, Message
from tests.support.nats import NatsServer

STREAM = StreamSpec("HISTORY", ("history.>",), timedelta(hours=1), 1 << 24)
RUNS = DurableSpec("runs", "HISTORY", ("history.>",), "planner", ack_wait=timedelta(seconds=1))
SETTINGS = JetStreamSettings(
    connect_timeout=timedelta(seconds=2),
    publish_timeout=timedelta(seconds=1),
    stop_timeout=timedelta(seconds=2),
    heartbeat=timedelta(milliseconds=400),
)

_ids = count()


def message(text: str) -> Message:
    return Message(subject="history.run.created", data=text.encode(), id=f"f{next(_ids)}")


class Seen:
    """A handler that acks and keeps what it was given."""

    def __init__(self) -> None:
        self.delivered: list[Delivered] = []

    async def __call__(self, batch: Sequence[Delivered]) -> Sequence[Disposition]:
        self.delivered.extend(batch)
        return [ACK] * len(batch)

    @property
    def texts(self) -> set[str]:
        return {item.data.decode() for item in self.delivered}


def said(logs: Sequence[Mapping[str, object]]) -> list[object]:
    """What an operator reads."""
    return [log["event"] for log in logs if log["log_level"] != "debug"]


def jetstream(url: str, handler: Seen | None = None) -> JetStreamBus:
    bus = JetStreamBus(url, name="test", settings=SETTINGS)
    if handler is not None:
        bus.subscribe(RUNS, handler)
    return bus


async def until(condition: Callable[[], Awaitable[bool]], *, within: float = 15.0) -> None:
    """Wait until a condition of the outside holds: ask again and again, for at most `within` seconds."""
    async with asyncio.timeout(within):
        while not await condition():  # noqa: ASYNC110 - nobody outside sets an event for us
            await asyncio.sleep(0.01)


async def until_seen(seen: Seen, texts: set[str], *, within: float = 15.0) -> None:
    async def condition() -> bool:
        return texts <= seen.texts

    await until(condition, within=within)


@pytest.fixture
async def declared(nats_url: str) -> str:
    await declare(nats_url, streams=[STREAM], durables=[RUNS])
    return nats_url


_DIES = """
import asyncio, sys
from tests.conformance.test_bus_failures import Seen, jetstream

async def main():
    await jetstream(sys.argv[1], Seen()).start()
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_what_a_killed_process_had_handled_but_not_acked_comes_again(declared: str) -> None:
    bus = jetstream(declared)
    await bus.start()
    await bus.publish([message("a"), message("b")])
    victim = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _DIES, declared,
        env={**os.environ, "MINUTEBOOK_FAULTPOINT": "message.handled"},
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert await asyncio.wait_for(victim.wait(), 20) == -9
    seen = Seen()
    survivor = jetstream(declared, seen)
    await survivor.start()
    await until_seen(seen, {"a", "b"})
    assert {item.deliveries for item in seen.delivered} == {2}
    await survivor.stop()
    await bus.stop()


async def test_what_a_crashed_memory_bus_held_comes_again_after_ack_wait() -> None:
    broker = MemoryBroker(streams=[STREAM], durables=[RUNS])
    begun, never = asyncio.Event(), asyncio.Event()

    async def hangs(batch: Sequence[Delivered]) -> Sequence[Disposition]:
        begun.set()
        await never.wait()
        return [ACK] * len(batch)

    victim, survivor, seen = MemoryBus(broker), MemoryBus(broker), Seen()
    victim.subscribe(RUNS, hangs)
    survivor.subscribe(RUNS, seen)
    await victim.start()
    await victim.publish([message("a")])
    await begun.wait()
    crashed = asyncio.get_running_loop().time()
    with capture_logs():
        await victim.crash()
    await survivor.start()
    await until_seen(seen, {"a"})
    assert asyncio.get_running_loop().time() - crashed >= RUNS.ack_wait.total_seconds() * 0.95
    assert [item.deliveries for item in seen.delivered] == [2]
    await survivor.stop()


async def test_a_server_killed_and_started_again_is_resumed_with_nothing_lost(own_nats_server: NatsServer) -> None:
    url = own_nats_server.next_url()
    await declare(url, streams=[STREAM], durables=[RUNS])
    seen = Seen()
    bus = jetstream(url, seen)
    await bus.start()
    acknowledged: set[str] = set()
    with capture_logs() as logs:
        for batch in range(20):
            texts = [f"{batch}-{n}" for n in range(20)]
            if batch == 10:
                own_nats_server.kill()
                with pytest.raises(Unavailable):
                    await bus.publish([message("while down")])
                assert not await bus.usable()
                own_nats_server.start()
                await until(bus.usable)
            await bus.publish([message(text) for text in texts])
            acknowledged.update(texts)
        await until_seen(seen, acknowledged)
    assert said(logs) == ["bus connection lost, connecting again", "bus connection restored"]
    await bus.stop()


async def test_asks_are_answered_again_after_a_restart(own_nats_server: NatsServer) -> None:
    async def answer(_subject: str, data: bytes, _headers: object) -> bytes:
        return data

    bus = jetstream(own_nats_server.next_url())
    bus.answer("ask.planner.start_run", answer)
    await bus.start()
    with capture_logs() as logs:
        own_nats_server.kill()
        own_nats_server.start()

        async def restored() -> bool:
            return any(log["event"] == "bus connection restored" for log in logs)

        await until(restored)
    assert await bus.ask("ask.planner.start_run", b"x", headers={}, timeout=timedelta(seconds=5)) == b"x"
    await bus.stop()


async def test_stop_is_bounded_while_the_server_is_down(own_nats_server: NatsServer) -> None:
    url = own_nats_server.next_url()
    await declare(url, streams=[STREAM], durables=[RUNS])
    bus = jetstream(url, Seen())
    await bus.start()
    own_nats_server.kill()
    with capture_logs():
        async with asyncio.timeout(15):
            await bus.stop()


async def test_a_deleted_durable_is_noticed_without_a_spin_and_consumed_again_once_it_is_back(declared: str) -> None:
    seen = Seen()
    bus = jetstream(declared, seen)
    admin = await nats.connect(declared)
    await bus.start()
    await bus.publish([message("before")])
    await until_seen(seen, {"before"})
    with capture_logs() as logs:
        await admin.jetstream().delete_consumer(STREAM.name, RUNS.name)

        async def noticed() -> bool:
            return any(log["log_level"] == "warning" for log in logs)

        await until(noticed)
        cpu, wall = time.process_time(), time.monotonic()
        await asyncio.sleep(2)  # a span to measure the processor over
        share = (time.process_time() - cpu) / (time.monotonic() - wall)
        assert share < 0.2, f"{share:.0%} of a processor while there is nothing to do"
        assert not await bus.usable()
        await declare(declared, streams=[STREAM], durables=[RUNS])
        await until(bus.usable)
        await bus.publish([message("after")])
        await until_seen(seen, {"after"})
    assert said(logs) == ["durable is not consumed, trying again", "durable is consumed again"]
    await admin.close()
    await bus.stop()


async def test_a_durable_that_is_declared_after_the_start_is_consumed(nats_url: str) -> None:
    seen = Seen()
    bus = jetstream(nats_url, seen)
    with capture_logs():
        await bus.start()
        assert not await bus.usable()
        assert await declare(nats_url, streams=[STREAM], durables=[RUNS]) == (
            "created stream HISTORY",
            "created durable runs",
        )
        await until(bus.usable)
        await bus.publish([message("a")])
        await until_seen(seen, {"a"})
        await bus.stop()


async def test_a_durable_deleted_and_declared_again_at_once_is_consumed_again(declared: str) -> None:
    seen = Seen()
    bus = jetstream(declared, seen)
    admin = await nats.connect(declared)
    await bus.start()
    with capture_logs():
        await admin.jetstream().delete_consumer(STREAM.name, RUNS.name)
        await declare(declared, streams=[STREAM], durables=[RUNS])
        await bus.publish([message("a")])
        await until_seen(seen, {"a"}, within=5)
    await admin.close()
    await bus.stop()


async def test_a_server_that_falls_silent_is_noticed_and_consumed_again(own_nats_server: NatsServer) -> None:
    """A request can be lost without a word, and the connection stay open; then no heartbeat comes."""
    url = own_nats_server.next_url()
    await declare(url, streams=[STREAM], durables=[RUNS])
    seen = Seen()
    bus = jetstream(url, seen)
    await bus.start()
    with capture_logs() as logs:
        own_nats_server.freeze()

        async def noticed() -> bool:
            return any("silent" in log.get("reason", "") for log in logs)

        await until(noticed)
        own_nats_server.thaw()
        await until(bus.usable)
        await bus.publish([message("a")])
        await until_seen(seen, {"a"})
    assert said(logs) == []
    await bus.stop()


async def test_without_a_server_the_start_is_refused_and_secrets_stay_out_of_it() -> None:
    bus = JetStreamBus("nats://someone:sesame@127.0.0.1:9", name="test", settings=SETTINGS)
    with capture_logs() as logs, pytest.raises(Unavailable) as caught:
        await bus.start()
    assert "127.0.0.1:9" in caught.value.message
    assert "sesame" not in str(caught.value) + str(logs)
    await bus.stop()


async def test_credentials_are_used_and_wrong_ones_are_refused(nats_url: str) -> None:
    account, _, address = nats_url.removeprefix("nats://").partition("@")
    user, _, password = account.partition(":")
    right = JetStreamBus(f"nats://{address}", name="test", credentials=Credentials(user, password), settings=SETTINGS)
    await right.start()
    assert await right.usable()
    await right.stop()
    wrong = JetStreamBus(f"nats://{address}", name="test", credentials=Credentials(user, "sesame"), settings=SETTINGS)
    with capture_logs() as logs, pytest.raises(Unavailable) as caught:
        await wrong.start()
    assert "correct the address and credentials" in caught.value.message
    assert "sesame" not in str(caught.value) + str(logs) + repr(Credentials(user, "sesame"))
