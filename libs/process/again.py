"""What lost to others and is tried again by whoever has the patience: a pause between, longer each time."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from contracts.errors import MinutebookError
from libs.clock import monotonic

R = TypeVar("R")

PAUSE_SECONDS_FIRST: Final = 0.02
PAUSE_SECONDS_MAX: Final = 0.5


async def persist(act: Callable[[], Awaitable[R]], *, until: float) -> R:
    """Do it, and do it again while it says that it may be taken then; until this moment of `libs.clock.monotonic`.

    The pauses have jitter, so that those who lost together do not come back together.

    Raises:
        contracts.errors.MinutebookError: what is no such error, at once; else the last one, when time is over.
    """
    pause = PAUSE_SECONDS_FIRST
    while True:
        try:
            return await act()
        except MinutebookError as error:
            if not error.again or monotonic() + pause >= until:
                raise
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spread, not secrecy
        pause = min(pause * 2, PAUSE_SECONDS_MAX)
