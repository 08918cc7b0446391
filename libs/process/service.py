"""A running service: its connection to the bus and its background duties, with one way to start and stop."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import asyncpg

from contracts.envelope import Owner as ServiceName
from libs.bus.port import Bus
from libs.config import Secrets, Settings
from libs.eventstore.postgres import PostgresStore
from libs.telemetry.logs import get_logger

RESTART_SECONDS_MIN: Final = 0.5
RESTART_SECONDS_MAX: Final = 30.0
FLUSH_SECONDS: Final = 1.0
"""How often an idle service forgets the outbox rows that were acked; a busy one does it with its appends."""

_log = get_logger("process")

Duty = Callable[[], Awaitable[None]]
"""A background duty: runs until it is cancelled. One that fails is logged and started again, with backoff."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a service is built from: its own connections, never shared with another service."""

    settings: Settings
    secrets: Secrets
    pool: asyncpg.Pool
    store: PostgresStore
    bus: Bus

    async def close(self) -> None:
        """Flush what the store holds back and let the connections go."""
        await self.store.close()
        await self.pool.close()


class Service:
    """One of the seven. `start` returns when it is usable; `stop` drains."""

    def __init__(
        self, name: ServiceName, tools: Tools, duties: Sequence[Duty] = (), on_stop: Sequence[Duty] = ()
    ) -> None:
        self.name = name
        self._tools = tools
        self._duties = (*duties, self._flush)
        self._on_stop = on_stop
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connect to the bus, then begin the duties."""
        await self._tools.bus.start()
        self._tasks = [
            asyncio.create_task(self._keep(duty), name=f"{self.name}:{duty.__name__}") for duty in self._duties
        ]
        _log.info("service started", service=self.name)

    async def ready(self) -> bool:
        """Whether the bus is usable and the database answers."""
        try:
            await self._tools.store.now()
        except Exception:
            return False
        return await self._tools.bus.usable()

    async def stop(self) -> None:
        """Take no more, finish what is in hand, hand back the rest."""
        await self._tools.bus.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for last in self._on_stop:
            await last()
        await self._tools.close()
        _log.info("service stopped", service=self.name)

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self._tools.store.flush()

    async def _keep(self, duty: Duty) -> None:
        delay = RESTART_SECONDS_MIN
        while True:
            began = time.monotonic()
            try:
                await duty()
                return
            except asyncio.CancelledError:
                raise
            except Exception as error:
                _log.warning("duty failed, starting it again", service=self.name, duty=duty.__name__, error=str(error))
                ran_long = time.monotonic() - began > RESTART_SECONDS_MAX
                delay = RESTART_SECONDS_MIN if ran_long else min(delay * 2, RESTART_SECONDS_MAX)
                await asyncio.sleep(delay)
