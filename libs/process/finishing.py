"""Waiting for the end of what is under way, also of what it begins itself."""

import asyncio
from collections.abc import Collection
from datetime import timedelta
from typing import Any

from libs.clock import monotonic


async def finished(tasks: Collection[asyncio.Task[Any]], within: timedelta) -> None:
    """Return once these have ended, and those that were added meanwhile; at most after `within`.

    Who adds and removes tasks is the caller: a task that has ended must leave the collection.
    """
    over = monotonic() + within.total_seconds()
    while tasks and (left := over - monotonic()) > 0:
        await asyncio.wait(tuple(tasks), timeout=left)
        await asyncio.sleep(0)  # what has ended is removed by a callback
