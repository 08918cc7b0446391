"""A running service: its connection to the bus and its background duties, with one way to start and stop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import asyncpg

from contracts.envelope import Owner as ServiceName
from contracts.errors import MinutebookError, Unavailable
from libs.bus.port import Bus
from libs.clock import monotonic
from libs.config import Secrets, Settings
from libs.eventstore.port import Store
from libs.telemetry.logs import get_logger

RESTART_SECONDS_MIN: Final = 0.5
RESTART_SECONDS_MAX: Final = 30.0
FLUSH_SECONDS: Final = 1.0
"""How often an idle service forgets the outbox rows that were acked; a busy one does it with its appends."""

ERA_SECONDS: Final = 5.0
"""How often a service looks whether its database was restored: an idle one learns it from no append."""

PROBE_TIMEOUT: Final = timedelta(seconds=2)
_NOBODY_TIMEOUT: Final = timedelta(seconds=0.5)
_NOBODY: Final = "ask.nobody"
"""A subject that nobody answers: a server that is there says so at once."""

_log = get_logger("process")

Duty = Callable[[], Awaitable[None]]
"""A background duty: runs until it is cancelled. One that fails is logged and started again, with backoff."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a service is built from: its own connections, never shared with another service.

    `pool` is what `store` stands on, for those that read by SQL of their own; None where the record is in memory.
    """

    settings: Settings
    secrets: Secrets
    pool: asyncpg.Pool | None
    store: Store
    bus: Bus

    async def close(self) -> None:
        """Flush what the store holds back and let the connections go."""
        try:
            await self.store.close()
        finally:
            if self.pool is not None:
                await self.pool.close()

    def terminate(self) -> None:
        """Cut the connections where they are."""
        if self.pool is not None:
            self.pool.terminate()

    def require_pool(self) -> asyncpg.Pool:
        """The pool of a service that cannot do without one."""
        assert self.pool is not None, "this service reads the database by itself"
        return self.pool


@dataclass(frozen=True, slots=True)
class Readiness:
    """What a service needs, each usable or not. `durables` can be usable only while the bus is."""

    started: bool
    database: bool
    bus: bool
    durables: bool

    @property
    def ok(self) -> bool:
        """Whether the service can do its work."""
        return self.started and self.database and self.bus and self.durables


class Service:
    """One of the seven. `start` returns when it is usable; `stop` drains.

    `drains` finish, or hand back, what the service has in hand beside its messages; the bus takes nothing more by then
    and still publishes. `on_stop` comes last, when nothing runs any more.
    """

    def __init__(
        self,
        name: ServiceName,
        tools: Tools,
        duties: Sequence[Duty] = (),
        on_stop: Sequence[Duty] = (),
        drains: Sequence[Duty] = (),
    ) -> None:
        self.name = name
        self._tools = tools
        self._duties = (*duties, self._flush, self._watch_era)
        self._drains = drains
        self._on_stop = on_stop
        self._tasks: list[asyncio.Task[None]] = []
        self._started = False
        self.outlived = asyncio.Event()
        """Set once the database was restored under this service: nothing that it writes is taken any more."""

    async def start(self) -> None:
        """Connect to the bus, then begin the duties."""
        await self._tools.bus.start()
        self._tasks = [
            asyncio.create_task(self._keep(duty), name=f"{self.name}:{duty.__name__}") for duty in self._duties
        ]
        self._started = True
        _log.info("service started", service=self.name)

    async def ready(self) -> Readiness:
        """Look at everything that the service needs. Answers within `PROBE_TIMEOUT` or twice that, and never raises."""
        database, usable = await asyncio.gather(_holds(self._database()), _holds(self._tools.bus.usable()))
        bus = usable or await _holds(self._connected())
        return Readiness(started=self._started, database=database, bus=bus, durables=usable)

    async def stop(self) -> None:
        """Take no more, finish what is in hand, hand back the rest.

        A step that fails, as when the database is away, is logged and keeps no later one from its turn.
        """
        self._started = False
        await self._last("quiesce", self._tools.bus.quiesce)
        for drain in self._drains:
            await self._last("drain", drain)
        await self._last("bus", self._tools.bus.stop)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for last in self._on_stop:
            await self._last("last", last)
        await self._last("close", self._tools.close)
        _log.info("service stopped", service=self.name)

    async def _last(self, step: str, work: Duty) -> None:
        try:
            await work()
        except (MinutebookError, OSError) as error:  # what it talks to is away
            code = error.code if isinstance(error, MinutebookError) else type(error).__name__
            _log.warning("stopping goes on without a step", service=self.name, step=step, code=code)
        except Exception as error:
            _log.exception("a step of stopping failed", service=self.name, step=step, error=type(error).__name__)

    async def _database(self) -> bool:
        return await self._tools.store.era_goes_on()

    async def _connected(self) -> bool:
        try:
            await self._tools.bus.ask(_NOBODY, b"", headers={}, timeout=_NOBODY_TIMEOUT)
        except Unavailable as error:
            return error.code == "bus.no_responder"
        return True

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self._tools.store.flush()

    async def _watch_era(self) -> None:
        while await self._in_era():  # noqa: ASYNC110 - the other side is a database
            await asyncio.sleep(ERA_SECONDS)
        _log.critical("the database was restored, this service must be started again", service=self.name)
        self.outlived.set()

    async def _in_era(self) -> bool:
        try:
            return await self._tools.store.era_goes_on()
        except Unavailable:  # told by the store, once
            return True

    async def _keep(self, duty: Duty) -> None:
        delay = RESTART_SECONDS_MIN
        while True:
            began = monotonic()
            try:
                await duty()
                return
            except asyncio.CancelledError:
                raise
            except Exception as error:
                _log.warning("duty failed, starting it again", service=self.name, duty=duty.__name__, error=str(error))
                ran_long = monotonic() - began > RESTART_SECONDS_MAX
                delay = RESTART_SECONDS_MIN if ran_long else min(delay * 2, RESTART_SECONDS_MAX)
                await asyncio.sleep(delay)


async def _holds(probe: Awaitable[bool]) -> bool:
    """Whatever a probe fails with, it says the same: not usable."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT.total_seconds()):
            return await probe
    except Exception:
        return False
