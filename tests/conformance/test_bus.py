"""One suite for the bus port, kept by the adapter in memory and by the one on a real nats-server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count

import nats
import pytest
from structlog.testing import capture_logs

from contracts.errors import Broken, Rejected, Unavailable
from contracts.subjects import DurableSpec, StreamSpec
from libs.bus.declare import declare
from libs.bus.jetstream import JetStreamBus, JetStreamSettings
from libs.bus.memory import MemoryBroker, MemoryBus
from libs.bus.port import ACK, Bus, Delivered, Disposition, Message

STREAM = StreamSpec("HISTORY", ("history.>",), timedelta(hours=1), 1 << 24)
RUNS = DurableSpec(
    "runs", "HISTORY", ("history.run.created", "history.run.failed"), "planner", ack_wait=timedelta(seconds=1)
)
ALL = DurableSpec("all", "HISTORY", ("history.>",), "runner")
SETTINGS = JetStreamSettings(
    publish_timeout=timedelta(seconds=2), stop_timeout=timedelta(seconds=2), heartbeat=timedelta(seconds=1)
)

_ids = count()


@dataclass
class World:
    """An adapter's broker with one stream and two durables, and the buses that a test made on it."""

    make: Callable[[], Bus]
    delete_durable: Callable[[DurableSpec], Awaitable[None]]
    delete_stream: Callable[[str], Awaitable[None]]
    buses: list[Bus] = field(default_factory=list)

    def bus(self) -> Bus:
        self.buses.append(self.make())
        return self.buses[-1]

    async def started(self) -> Bus:
        bus = self.bus()
        await bus.start()
        return bus


@pytest.fixture(params=["memory", "jetstream"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param == "memory":
        world = _in_memory()
    else:
        url: str = request.getfixturevalue("nats_url")
        await declare(url, streams=[STREAM], durables=[RUNS, ALL])
        world = _on_jetstream(url)
    yield world
    await asyncio.gather(*(bus.stop() for bus in world.buses))


def _in_memory() -> World:
    broker = MemoryBroker(streams=[STREAM], durables=[RUNS, ALL])

    async def delete_durable(durable: DurableSpec) -> None:
        broker.delete(durable)

    async def delete_stream(name: str) -> None:
        broker.delete_stream(name)

    return World(lambda: MemoryBus(broker), delete_durable, delete_stream)


def _on_jetstream(url: str) -> World:
    async def delete_durable(durable: DurableSpec) -> None:
        client = await nats.connect(url)
        await client.jetstream().delete_consumer(durable.stream, durable.name)
        await client.close()

    async def delete_stream(name: str) -> None:
        client = await nats.connect(url)
        await client.jetstream().delete_stream(name)
        await client.close()

    def make() -> Bus:
        return JetStreamBus(url, name="test", settings=SETTINGS, streams=[STREAM], durables=[RUNS, ALL])

    return World(make, delete_durable, delete_stream)


class Recorder:
    """A handler that keeps what it was given and answers with `dispose`, while `open` is set."""

    def __init__(self, dispose: Callable[[Delivered], Disposition] = lambda _: ACK) -> None:
        self.batches: list[list[Delivered]] = []
        self.dispose = dispose
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, batch: Sequence[Delivered]) -> Sequence[Disposition]:
        self.batches.append(list(batch))
        await self.open.wait()
        return [self.dispose(item) for item in batch]

    @property
    def delivered(self) -> list[Delivered]:
        return [item for batch in self.batches for item in batch]

    @property
    def texts(self) -> list[str]:
        return [item.data.decode() for item in self.delivered]


def message(text: str, *, subject: str = "history.run.created", id_: str | None = None) -> Message:
    return Message(subject=subject, data=text.encode(), id=id_ or f"m{next(_ids)}", headers={"traceparent": "00-x"})


async def elapse(span: timedelta) -> None:
    """Let real time pass, where the promise is that nothing comes of it."""
    await asyncio.sleep(span.total_seconds())


async def until(condition: Callable[[], bool], *, within: float = 10.0) -> None:
    """Wait until a condition holds; it is asked again at every turn of events, for at most `within` seconds."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - the condition is about the outside
            await asyncio.sleep(0.005)


async def test_what_is_published_is_delivered_as_it_was_sent(world: World) -> None:
    seen = Recorder()
    bus = world.bus()
    bus.subscribe(ALL, seen)
    await bus.start()
    await bus.publish([message("a"), message("b", subject="history.decision.answered")])
    await until(lambda: len(seen.delivered) == 2)
    assert [(d.subject, d.data, d.headers["traceparent"], d.deliveries) for d in seen.delivered] == [
        ("history.run.created", b"a", "00-x", 1),
        ("history.decision.answered", b"b", "00-x", 1),
    ]


async def test_a_durable_delivers_what_was_published_before_it_was_consumed_and_only_its_subjects(world: World) -> None:
    await (await world.started()).publish(
        [message("a"), message("other", subject="history.run.started"), message("b", subject="history.run.failed")]
    )
    seen = Recorder()
    bus = world.bus()
    bus.subscribe(RUNS, seen)
    await bus.start()
    await bus.publish([message("c")])
    await until(lambda: len(seen.delivered) == 3)
    assert seen.texts == ["a", "b", "c"]


async def test_messages_that_arrive_while_a_batch_is_in_hand_make_one_batch(world: World) -> None:
    seen = Recorder()
    seen.open.clear()
    bus = world.bus()
    bus.subscribe(ALL, seen, batch_max=50)
    await bus.start()
    await bus.publish([message("first")])
    await until(lambda: seen.texts == ["first"])
    await bus.publish([message(str(n)) for n in range(40)])
    await bus.publish([message("last")])
    await until(lambda: held_by(bus) == 42)
    seen.open.set()
    await until(lambda: len(seen.delivered) == 42)
    assert [len(batch) for batch in seen.batches] == [1, 41]
    assert seen.texts == ["first", *map(str, range(40)), "last"]


async def test_a_batch_has_its_maximum_and_only_one_is_in_hand(world: World) -> None:
    in_hand, most = 0, 0

    async def handler(batch: Sequence[Delivered]) -> Sequence[Disposition]:
        nonlocal in_hand, most
        in_hand += 1
        most = max(most, in_hand)
        await asyncio.sleep(0)
        sizes.append(len(batch))
        in_hand -= 1
        return [ACK] * len(batch)

    sizes: list[int] = []
    bus = world.bus()
    bus.subscribe(ALL, handler, batch_max=7)
    await bus.start()
    await bus.publish([message(str(n)) for n in range(100)])
    await until(lambda: sum(sizes) == 100)
    assert max(sizes) <= 7
    assert most == 1


async def test_nak_brings_a_message_again_after_its_delay_and_counts(world: World) -> None:
    loop = asyncio.get_running_loop()
    times: list[float] = []

    def dispose(item: Delivered) -> Disposition:
        times.append(loop.time())
        return ACK if item.deliveries == 3 else Disposition("nak", timedelta(milliseconds=150 * (item.deliveries - 1)))

    seen = Recorder(dispose)
    bus = world.bus()
    bus.subscribe(RUNS, seen)
    await bus.start()
    await bus.publish([message("a")])
    await until(lambda: len(times) == 3)
    assert [d.deliveries for d in seen.delivered] == [1, 2, 3]
    assert times[2] - times[1] >= 0.149


async def test_ack_and_term_end_a_message(world: World) -> None:
    seen = Recorder(lambda item: Disposition("term") if item.data == b"a" else ACK)
    bus = world.bus()
    bus.subscribe(RUNS, seen)
    await bus.start()
    with capture_logs():
        await bus.publish([message("a"), message("b")])
        await until(lambda: len(seen.delivered) == 2)
    # Longer than ack_wait, and by what the durable itself delivers: had they not ended, they would come before "c".
    await elapse(RUNS.ack_wait * 1.3)
    await bus.publish([message("c")])
    await until(lambda: "c" in seen.texts)
    assert seen.texts == ["a", "b", "c"]


async def test_what_a_handler_raises_decides_each_message_alone(world: World) -> None:
    calls: list[str] = []

    async def handler(batch: Sequence[Delivered]) -> Sequence[Disposition]:
        for item in batch:
            calls.append(item.data.decode())
            if item.data == b"poison":
                raise Broken("test.poison", "cannot be handled")
            if item.data == b"refused":
                raise Rejected("test.no", "no")
            if item.data == b"early" and item.deliveries == 1:
                raise Unavailable("test.early", "not yet")
        return [ACK] * len(batch)

    bus = world.bus()
    bus.subscribe(RUNS, handler)
    await bus.start()
    with capture_logs():
        await bus.publish([message(t) for t in ("good", "poison", "refused", "early", "fine")])
        await until(lambda: calls.count("early") >= 2 and "fine" in calls)
        await bus.publish([message("after")])
        await until(lambda: "after" in calls)
    assert calls[-1] == "after"


async def test_a_message_id_is_taken_once_within_the_window(world: World) -> None:
    seen = Recorder()
    bus = world.bus()
    bus.subscribe(ALL, seen)
    await bus.start()
    await bus.publish([message("a", id_="same"), message("b", id_="same")])
    await bus.publish([message("c", id_="same")])
    await until(lambda: bool(seen.texts))
    await bus.publish([message("d", id_="same"), message("e")])
    await until(lambda: "e" in seen.texts)
    assert seen.texts == ["a", "e"]


async def test_two_consumers_of_one_durable_share_the_work(world: World) -> None:
    both = [Recorder(), Recorder()]
    for seen in both:
        bus = world.bus()
        bus.subscribe(ALL, seen, batch_max=5)
        await bus.start()
    await (await world.started()).publish([message(str(n)) for n in range(200)])
    await until(lambda: len(both[0].texts) + len(both[1].texts) == 200)
    assert sorted(both[0].texts + both[1].texts, key=int) == [str(n) for n in range(200)]
    assert all(seen.texts for seen in both)


async def test_a_handler_that_takes_longer_than_ack_wait_keeps_its_messages(world: World) -> None:
    seen = Recorder()
    seen.open.clear()
    bus = world.bus()
    bus.subscribe(RUNS, seen, batch_max=1)
    await bus.start()
    await bus.publish([message("slow"), message("behind")])
    await until(lambda: held_by(bus) == 2)
    # An idle consumer of the same durable: whatever the first one loses comes to it.
    idle = Recorder()
    other = world.bus()
    other.subscribe(RUNS, idle)
    await other.start()
    await elapse(RUNS.ack_wait * 2.2)
    assert idle.texts == []
    seen.open.set()
    await until(lambda: len(seen.delivered) == 2)
    assert [(d.data, d.deliveries) for d in seen.delivered] == [(b"slow", 1), (b"behind", 1)]


async def test_stop_finishes_what_is_in_hand_and_hands_back_the_rest_at_once(world: World) -> None:
    slow = Recorder()
    slow.open.clear()
    spec = replace(ALL, ack_wait=timedelta(seconds=30))
    leaving = world.bus()
    leaving.subscribe(spec, slow, batch_max=3)
    await leaving.start()
    await leaving.publish([message("in hand")])
    await until(lambda: slow.texts == ["in hand"])
    await leaving.publish([message(str(n)) for n in range(20)])
    await until(lambda: held_by(leaving) > 1)
    stopping = asyncio.create_task(leaving.stop())
    fast = Recorder()
    staying = world.bus()
    staying.subscribe(spec, fast)
    await staying.start()
    # Far below ack_wait: what the leaving one held was handed back.
    await until(lambda: len(fast.texts) == 20, within=8)
    slow.open.set()
    await stopping
    await staying.publish([message("after")])
    await until(lambda: "after" in fast.texts)
    assert slow.texts == ["in hand"]
    assert sorted(fast.texts[:-1], key=int) == [str(n) for n in range(20)]
    assert fast.texts[-1] == "after"


async def test_stop_does_not_wait_for_ever_and_may_be_repeated(world: World) -> None:
    bus = world.bus()
    with pytest.raises(Unavailable):
        await bus.publish([message("a")])
    await bus.start()
    async with asyncio.timeout(10):
        await bus.stop()
        await bus.stop()
    with pytest.raises(Unavailable):
        await bus.publish([message("a")])
    assert not await bus.usable()


async def test_publishing_what_no_stream_takes_is_unavailable(world: World) -> None:
    bus = await world.started()
    with pytest.raises(Unavailable):
        await bus.publish([message("a"), message("b", subject="elsewhere.a")])


async def test_a_message_larger_than_an_envelope_is_refused_before_anything_is_sent(world: World) -> None:
    seen = Recorder()
    bus = world.bus()
    bus.subscribe(ALL, seen)
    await bus.start()
    with pytest.raises(Broken):
        await bus.publish([message("a"), message("b" * (512 * 1024 + 1))])
    await bus.publish([message("c")])
    await until(lambda: bool(seen.texts))
    assert seen.texts == ["c"]


async def test_every_bus_overhears_what_it_listens_for_until_it_stops(world: World) -> None:
    heard: list[list[tuple[str, bytes]]] = [[], []]

    def listening(to: list[tuple[str, bytes]]) -> Bus:
        bus = world.bus()
        bus.listen("history.run.*", lambda subject, data: to.append((subject, data)))
        return bus

    buses = [listening(each) for each in heard]
    await asyncio.gather(*(bus.start() for bus in buses))
    publisher = await world.started()
    await publisher.publish([message("a"), message("other", subject="history.decision.answered"), message("b")])
    expected = [("history.run.created", b"a"), ("history.run.created", b"b")]
    await until(lambda: heard == [expected, expected])
    await buses[0].stop()
    await publisher.publish([message("c")])
    await until(lambda: len(heard[1]) == 3)
    assert heard[0] == expected


async def test_a_listener_that_raises_hears_the_next_message(world: World) -> None:
    heard: list[bytes] = []

    def listener(_subject: str, data: bytes) -> None:
        heard.append(data)
        raise ValueError("a bug")

    bus = world.bus()
    bus.listen("history.run.created", listener)
    await bus.start()
    with capture_logs() as logs:
        await bus.publish([message("a"), message("b")])
        await until(lambda: len(heard) == 2)
    assert [log["event"] for log in logs] == ["listener failed"] * 2


async def test_asks_are_answered_with_the_bytes_that_the_handler_made(world: World) -> None:
    asked: list[tuple[str, bytes, str]] = []

    async def answer(subject: str, data: bytes, headers: Mapping[str, str]) -> bytes:
        asked.append((subject, data, headers["traceparent"]))
        return b'{"result": "\xc3\xa9"}' + data

    bus = world.bus()
    bus.answer("ask.planner.start_run", answer)
    await bus.start()
    asker = await world.started()
    for data in (b'{"a": 1}', b"", b"\x00\xff"):
        reply = await asker.ask("ask.planner.start_run", data, headers={"traceparent": "00-y"}, timeout=TWO_SECONDS)
        assert reply == b'{"result": "\xc3\xa9"}' + data
    assert asked[0] == ("ask.planner.start_run", b'{"a": 1}', "00-y")


TWO_SECONDS = timedelta(seconds=2)


async def test_many_asks_are_answered_at_once(world: World) -> None:
    waiting = asyncio.Barrier(50)

    async def answer(_subject: str, data: bytes, _headers: Mapping[str, str]) -> bytes:
        await waiting.wait()
        return data

    bus = world.bus()
    bus.answer("ask.planner.start_run", answer)
    await bus.start()
    asks: list[Awaitable[bytes]] = [
        bus.ask("ask.planner.start_run", str(n).encode(), headers={}, timeout=TWO_SECONDS) for n in range(50)
    ]
    assert await asyncio.gather(*asks) == [str(n).encode() for n in range(50)]


async def test_one_of_several_replicas_answers_an_ask(world: World) -> None:
    answered: list[int] = []

    def replica(number: int) -> Callable[[str, bytes, Mapping[str, str]], Awaitable[bytes]]:
        async def answer(_subject: str, _data: bytes, _headers: Mapping[str, str]) -> bytes:
            answered.append(number)
            return b"done"

        return answer

    for number in range(2):
        bus = world.bus()
        bus.answer("ask.planner.start_run", replica(number))
        await bus.start()
    asker = await world.started()
    for _ in range(40):
        await asker.ask("ask.planner.start_run", b"", headers={}, timeout=TWO_SECONDS)
    assert len(answered) == 40
    assert set(answered) == {0, 1}


async def test_an_ask_that_nobody_answers_is_unavailable_at_once(world: World) -> None:
    bus = await world.started()
    async with asyncio.timeout(5):
        with pytest.raises(Unavailable, match="nobody answers"):
            await bus.ask("ask.planner.start_run", b"", headers={}, timeout=timedelta(seconds=60))


async def test_an_ask_without_a_reply_in_time_is_unavailable(world: World) -> None:
    hold = asyncio.Event()

    async def answer(_subject: str, data: bytes, _headers: Mapping[str, str]) -> bytes:
        await hold.wait()
        return data

    bus = world.bus()
    bus.answer("ask.planner.start_run", answer)
    await bus.start()
    with pytest.raises(Unavailable, match="not answered"):
        await bus.ask("ask.planner.start_run", b"", headers={}, timeout=timedelta(milliseconds=100))
    hold.set()
    assert await bus.ask("ask.planner.start_run", b"again", headers={}, timeout=TWO_SECONDS) == b"again"


async def test_a_handler_that_raises_leaves_its_asker_without_a_reply_and_says_so(world: World) -> None:
    async def answer(_subject: str, _data: bytes, _headers: Mapping[str, str]) -> bytes:
        raise ZeroDivisionError

    bus = world.bus()
    bus.answer("ask.planner.start_run", answer)
    await bus.start()
    with capture_logs() as logs, pytest.raises(Unavailable):
        await bus.ask("ask.planner.start_run", b"", headers={}, timeout=timedelta(milliseconds=200))
    assert [(log["event"], log["error"]) for log in logs] == [("ask left unanswered", "ZeroDivisionError")]


async def test_stop_answers_the_asks_in_hand_and_takes_no_new_ones(world: World) -> None:
    hold, begun = asyncio.Event(), asyncio.Event()

    async def answer(_subject: str, data: bytes, _headers: Mapping[str, str]) -> bytes:
        begun.set()
        await hold.wait()
        return data

    leaving = world.bus()
    leaving.answer("ask.planner.start_run", answer)
    await leaving.start()
    asker = await world.started()
    asked = asyncio.create_task(asker.ask("ask.planner.start_run", b"x", headers={}, timeout=timedelta(seconds=5)))
    await begun.wait()
    stopping = asyncio.create_task(leaving.stop())
    await until_refused(asker)
    hold.set()
    assert await asked == b"x"
    await stopping


async def until_refused(asker: Bus) -> None:
    """Ask until nobody listens any more."""
    async with asyncio.timeout(5):
        while True:
            try:
                await asker.ask("ask.planner.start_run", b"", headers={}, timeout=timedelta(milliseconds=50))
            except Unavailable as error:
                if error.code == "bus.no_responder":
                    return


async def test_a_bus_is_usable_from_start_to_stop(world: World) -> None:
    bus = world.bus()
    bus.subscribe(RUNS, Recorder())
    assert not await bus.usable()
    await bus.start()
    assert await bus.usable()
    await bus.stop()
    assert not await bus.usable()


async def test_a_bus_whose_durable_does_not_exist_is_not_usable(world: World) -> None:
    bus = world.bus()
    bus.subscribe(replace(RUNS, name="absent"), Recorder())
    with capture_logs():
        await bus.start()
        assert not await bus.usable()
        await bus.stop()


def held_by(bus: Bus) -> int:
    """How many messages an adapter has taken and not settled: what `until` needs to know that they arrived."""
    if isinstance(bus, MemoryBus):
        return bus.held
    assert isinstance(bus, JetStreamBus)
    return bus.held
