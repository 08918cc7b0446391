"""From single pieces to batches: nothing waits for a timer, nothing is lost, a failure is told to whom it concerns."""

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from contracts.errors import Broken, Conflict, MinutebookError, Unavailable
from libs.process.pile import Pile


class Work:
    """Doubles numbers while `open` is set, and keeps the batches that it was given."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None

    async def __call__(self, pieces: Sequence[int]) -> Sequence[int | MinutebookError]:
        self.batches.append(list(pieces))
        self.begun.set()
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return [piece * 2 if piece else Conflict("piece.zero", "nothing to double") for piece in pieces]


async def test_what_comes_while_a_batch_is_in_hand_makes_the_next_one() -> None:
    work = Work()
    work.open.clear()
    pile: Pile[int, int] = Pile(work, name="numbers", batch_max=3)
    first = [asyncio.create_task(pile.put(n)) for n in (1, 2)]
    await work.begun.wait()
    rest = [asyncio.create_task(pile.put(n)) for n in (3, 4, 5, 6)]
    await asyncio.sleep(0)
    work.open.set()
    assert await asyncio.gather(*first, *rest) == [2, 4, 6, 8, 10, 12]
    assert work.batches == [[1, 2], [3, 4, 5], [6]]


async def test_a_piece_that_fails_harms_nobody_else() -> None:
    pile: Pile[int, int] = Pile(Work(), name="numbers")
    one, zero = await asyncio.gather(pile.put(1), pile.put(0))
    assert one == 2
    assert isinstance(zero, Conflict)


async def test_an_error_of_the_batch_is_everybodys_and_the_next_batch_goes_on() -> None:
    work = Work()
    work.error = Unavailable("store.away", "the store is away")
    pile: Pile[int, int] = Pile(work, name="numbers")
    assert list(await asyncio.gather(pile.put(1), pile.put(2))) == [work.error] * 2
    work.error = None
    assert await pile.put(3) == 6


async def test_a_bug_is_logged_and_told_as_one() -> None:
    work = Work()
    work.error = ZeroDivisionError("secret")
    pile: Pile[int, int] = Pile(work, name="numbers")
    with capture_logs() as logs:
        outcome = await pile.put(1)
    assert isinstance(outcome, Broken)
    assert "secret" not in outcome.message
    assert [log["event"] for log in logs] == ["batch failed"]


async def test_a_caller_that_is_cancelled_leaves_its_piece_to_be_done() -> None:
    work = Work()
    work.open.clear()
    pile: Pile[int, int] = Pile(work, name="numbers")
    leaving = asyncio.create_task(pile.put(1))
    await work.begun.wait()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    staying = asyncio.create_task(pile.put(2))
    await asyncio.sleep(0)
    work.open.set()
    await pile.flush()
    assert await staying == 4
    assert work.batches == [[1], [2]]
