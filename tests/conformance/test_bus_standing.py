"""What a bus is made of, alike in both adapters: incarnations, what is missing, and taking no more while publishing."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from contracts.errors import Unavailable
from tests.conformance.test_bus import ALL, RUNS, STREAM, Recorder, World, message, until
from tests.conformance.test_bus import world as world  # the fixture


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await condition():  # noqa: ASYNC110 - the condition is about the outside
            await asyncio.sleep(0.01)


async def test_a_stream_made_again_is_another_incarnation(world: World) -> None:
    bus = await world.started()
    first = await bus.incarnations()
    assert first.keys() == {STREAM.name}
    assert await bus.redeclare() == ()
    assert await bus.incarnations() == first

    await world.delete_stream(STREAM.name)
    assert await bus.incarnations() == {}
    assert await bus.redeclare() == ("created stream HISTORY", "created durable runs", "created durable all")
    assert await bus.redeclare() == ()
    again = await bus.incarnations()
    assert again.keys() == first.keys()
    assert again != first


async def test_without_its_stream_nothing_is_taken(world: World) -> None:
    bus = await world.started()
    await world.delete_stream(STREAM.name)
    with pytest.raises(Unavailable):
        await bus.publish([message("a")])
    await bus.redeclare()
    await bus.publish([message("a")])


async def test_a_durable_made_again_delivers_what_its_stream_still_has(world: World) -> None:
    seen = Recorder()
    bus = world.bus()
    bus.subscribe(RUNS, seen)
    await bus.start()
    await bus.publish([message("a")])
    await until(lambda: seen.texts == ["a"])
    await world.delete_durable(RUNS)
    await bus.publish([message("b")])
    assert await bus.redeclare() == ("created durable runs",)
    await until(lambda: set(seen.texts) == {"a", "b"})
    await eventually(bus.usable)


async def test_consumers_go_on_when_their_stream_was_lost_and_made_again(world: World) -> None:
    seen = Recorder()
    bus = world.bus()
    bus.subscribe(ALL, seen)
    await bus.start()
    await bus.publish([message("a")])
    await until(lambda: seen.texts == ["a"])
    await world.delete_stream(STREAM.name)
    await bus.redeclare()
    await bus.publish([message("b")])
    await until(lambda: seen.texts == ["a", "b"])


async def test_a_quiet_bus_takes_nothing_and_still_publishes(world: World) -> None:
    async def answer(_subject: str, data: bytes, _headers: object) -> bytes:
        return data

    quiet, seen, other = world.bus(), Recorder(), Recorder()
    quiet.subscribe(ALL, seen)
    quiet.answer("ask.planner.start_run", answer)
    await quiet.start()
    await quiet.publish([message("a")])
    await until(lambda: seen.texts == ["a"])

    await quiet.quiesce()
    await quiet.quiesce()
    await quiet.publish([message("b")])
    with pytest.raises(Unavailable):
        await quiet.ask("ask.planner.start_run", b"", headers={}, timeout=timedelta(milliseconds=300))
    successor = world.bus()
    successor.subscribe(ALL, other)
    await successor.start()
    await until(lambda: other.texts == ["b"])
    assert seen.texts == ["a"]


async def test_what_is_in_hand_is_finished_while_the_bus_grows_quiet(world: World) -> None:
    seen, other = Recorder(), Recorder()
    seen.open.clear()
    bus = world.bus()
    bus.subscribe(ALL, seen)
    await bus.start()
    await bus.publish([message("a")])
    await until(lambda: seen.texts == ["a"])
    quiet = asyncio.create_task(bus.quiesce())
    await asyncio.wait({quiet}, timeout=0.2)
    assert not quiet.done(), "a batch is in hand"
    seen.open.set()
    await quiet
    await bus.publish([message("b")])
    successor = world.bus()
    successor.subscribe(ALL, other)
    await successor.start()
    await until(lambda: other.texts == ["b"])
