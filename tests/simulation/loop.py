"""An event loop whose time is virtual: when nothing is ready it jumps to the next timer."""

import asyncio
import itertools
from collections.abc import Coroutine, Generator, Sequence
from contextvars import Context, ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

TASKS: ContextVar[set[asyncio.Task[Any]] | None] = ContextVar("TASKS", default=None)
"""The tasks of the process whose code this is; a task that its code begins joins them. None outside of any."""


class _Future(asyncio.Future[Any]):
    """Hashed by when it was made: a set of such is walked in the same order by every process."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._serial = next(loop.serials)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._serial


class _Task(asyncio.Task[Any]):
    """Hashed like `_Future`."""

    def __init__(self, coro: Any, *, loop: "VirtualLoop", name: Any, context: Context | None) -> None:
        self._serial = next(loop.serials)
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._serial


class Deadlock(AssertionError):
    """Nothing is ready and no timer runs: the simulation would stand still for ever."""


class _Jump:
    """In the place of a selector: waiting for I/O is moving the clock on."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> Sequence[Any]:
        if timeout is None:
            raise Deadlock("no task is ready and no timer runs")
        if timeout > 0:
            self._loop.seconds += timeout
        return ()

    def close(self) -> None:
        return


class VirtualLoop(asyncio.BaseEventLoop):
    """Does no I/O. `seconds` is its time, from 0, and `serials` counts what it made: nothing of another loop's."""

    def __init__(self) -> None:
        self.serials = itertools.count()
        super().__init__()
        self.seconds = 0.0
        self._clock_resolution = 1e-9
        self._selector = _Jump(self)

    def time(self) -> float:
        return self.seconds

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Make a task that its process knows of."""
        task = _Task(coro, loop=self, name=name, context=context)
        tasks = TASKS.get() if context is None else context.get(TASKS, None)
        if tasks is not None:
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        return task

    def _process_events(self, event_list: Sequence[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector here."""
