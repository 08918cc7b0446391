"""The micro-batcher: what piles up makes a batch, and everybody hears of their own message."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from structlog.testing import capture_logs

from contracts.errors import Broken, Conflict, MinutebookError, Rejected, Unavailable
from libs.bus.disposition import BACKOFF_MAX, CONFLICT_DELAY, HAND_BACK, TERM
from libs.bus.microbatch import MicroBatcher
from libs.bus.port import ACK, Delivered, Disposition


def message(text: str, *, deliveries: int = 1) -> Delivered:
    return Delivered(subject="history.run.created", data=text.encode(), headers={}, deliveries=deliveries)


class Gated:
    """A handler whose batches wait for `open`; remembers them."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.begun = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, batch: Sequence[Delivered]) -> Sequence[Disposition]:
        self.batches.append([item.data.decode() for item in batch])
        self.begun.set()
        await self.open.wait()
        return [ACK] * len(batch)


class Poisoned:
    """A handler that raises for any batch holding a message listed in `errors`; remembers what it was called with."""

    def __init__(self, errors: dict[str, Exception]) -> None:
        self.errors = errors
        self.calls: list[list[str]] = []

    async def __call__(self, batch: Sequence[Delivered]) -> Sequence[Disposition]:
        texts = [item.data.decode() for item in batch]
        self.calls.append(texts)
        for text in texts:
            if text in self.errors:
                raise self.errors[text]
        return [ACK] * len(batch)


async def handle(errors: dict[str, Exception], texts: str) -> tuple[list[Disposition], list[list[str]]]:
    handler = Poisoned(errors)
    batcher = MicroBatcher(handler, name="test")
    with capture_logs():
        dispositions = await asyncio.gather(*(batcher.submit(message(text)) for text in texts))
    return dispositions, handler.calls


async def test_what_comes_in_one_turn_of_the_loop_is_one_batch() -> None:
    handler = Gated()
    handler.open.set()
    batcher = MicroBatcher(handler, name="test")
    assert await asyncio.gather(*(batcher.submit(message(t)) for t in "abc")) == [ACK] * 3
    assert handler.batches == [["a", "b", "c"]]


async def test_what_comes_while_a_batch_is_in_hand_makes_the_next_one() -> None:
    handler = Gated()
    batcher = MicroBatcher(handler, name="test", batch_max=3)
    first = batcher.submit(message("a"))
    await handler.begun.wait()
    rest = [batcher.submit(message(t)) for t in "bcdef"]
    assert handler.batches == [["a"]]
    handler.open.set()
    assert await asyncio.gather(first, *rest) == [ACK] * 6
    assert handler.batches == [["a"], ["b", "c", "d"], ["e", "f"]]


async def test_each_submitter_gets_its_own_disposition() -> None:
    own = {"a": ACK, "b": Disposition("nak", timedelta(seconds=3)), "c": TERM}

    async def handler(batch: Sequence[Delivered]) -> Sequence[Disposition]:
        return [own[item.data.decode()] for item in batch]

    batcher = MicroBatcher(handler, name="test")
    with capture_logs() as logs:
        assert await asyncio.gather(*(batcher.submit(message(t)) for t in own)) == list(own.values())
    assert [log["event"] for log in logs] == ["message dead-lettered by its handler"]


async def test_one_poisonous_message_harms_itself_only() -> None:
    dispositions, calls = await handle({"c": Broken("test.broken", "cannot be")}, "abcd")
    assert dispositions == [ACK, ACK, TERM, ACK]
    assert calls == [list("abcd"), ["a"], ["b"], ["c"], ["d"]]


async def test_an_error_of_each_message_is_its_own() -> None:
    dispositions, _ = await handle(
        {"a": Rejected("test.no", "no"), "b": Conflict("test.lost", "lost"), "c": ValueError("c")}, "abcd"
    )
    assert dispositions == [ACK, Disposition("nak", CONFLICT_DELAY), TERM, ACK]


async def test_one_message_that_finds_nothing_available_is_tried_again_alone() -> None:
    dispositions, _ = await handle({"b": Unavailable("test.gone", "gone")}, "abc")
    assert [d.verdict for d in dispositions] == ["ack", "nak", "ack"]
    assert timedelta(0) < dispositions[1].delay <= BACKOFF_MAX


async def test_an_outage_is_not_waited_for_once_per_message() -> None:
    outage: dict[str, Exception] = {text: Unavailable("test.gone", "gone") for text in "abcdef"}
    dispositions, calls = await handle(outage, "abcdef")
    assert {d.verdict for d in dispositions} == {"nak"}
    assert calls == [list("abcdef"), ["a"], ["b"]]


async def test_a_handler_that_miscounts_is_broken() -> None:
    async def handler(batch: Sequence[Delivered]) -> Sequence[Disposition]:
        return [ACK] * (len(batch) + 1)

    batcher = MicroBatcher(handler, name="test")
    with capture_logs() as logs:
        assert await batcher.submit(message("a")) == TERM
    assert logs[0]["code"] == "batch.miscounted"


async def test_dead_letters_are_logged_without_their_payload() -> None:
    errors: list[Exception] = [ValueError("the secret of a"), MinutebookError("test.code", "said by us")]

    async def handler(batch: Sequence[Delivered]) -> Sequence[Disposition]:
        raise errors.pop(0)

    batcher = MicroBatcher(handler, name="test")
    with capture_logs() as logs:
        await batcher.submit(message("the secret of a"))
        await batcher.submit(message("b", deliveries=4))
    assert "secret" not in str(logs)
    assert [(log["error"], log["deliveries"]) for log in logs] == [("ValueError", 1), ("MinutebookError", 4)]
    assert (logs[1]["code"], logs[1]["reason"]) == ("test.code", "said by us")


async def test_drain_finishes_the_batch_in_hand_and_hands_back_the_rest() -> None:
    handler = Gated()
    batcher = MicroBatcher(handler, name="test")
    first = batcher.submit(message("a"))
    await handler.begun.wait()
    second = batcher.submit(message("b"))
    draining = asyncio.create_task(batcher.drain())
    assert await second == HAND_BACK
    assert not first.done()
    assert await batcher.submit(message("c")) == HAND_BACK
    handler.open.set()
    await draining
    assert await first == ACK
    assert handler.batches == [["a"]]


async def test_drain_does_not_wait_for_ever() -> None:
    handler = Gated()
    batcher = MicroBatcher(handler, name="test")
    first = batcher.submit(message("a"))
    await handler.begun.wait()
    with capture_logs() as logs:
        await batcher.drain(timedelta(milliseconds=10))
    assert await first == HAND_BACK
    assert [log["event"] for log in logs] == ["batch cancelled, its handler did not finish in time"]


async def test_drain_of_an_idle_batcher_returns_at_once() -> None:
    await MicroBatcher(Gated(), name="test").drain()


async def test_a_submitter_that_gave_up_does_not_stop_the_others() -> None:
    handler = Gated()
    batcher = MicroBatcher(handler, name="test")
    gone, stays = batcher.submit(message("a")), batcher.submit(message("b"))
    await handler.begun.wait()
    gone.cancel()
    handler.open.set()
    assert await stays == ACK
