"""What everything in one simulation shares: time, chance, the record, the bus, the auditor and the trace."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, copy_context
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final, TypeVar, cast

from contracts.base import JsonObject
from contracts.subjects import DURABLES
from libs.bus.memory import MemoryBroker
from libs.config import Secrets, Settings
from libs.eventstore.memory import MemoryStore
from libs.process import Service, Tools
from tests.simulation.auditor import Auditor
from tests.simulation.faults import QUIET, Profile
from tests.simulation.loop import TASKS, VirtualLoop
from tests.simulation.process import Crash, Process, SimBus, SimStore
from tests.simulation.violation import Violation

T = TypeVar("T")
R = TypeVar("R")

LOSABLE: Final = (
    "wake.",
    "work.",
    "inbound.",
    "history.run.created",
    "history.attempt.",
    "history.effect.",
)
"""Messages behind which the clock stands, so that losing one without a trace costs time and nothing else."""

KEPT: Final = "history.effect.settled"
"""The run that a doubt has suspended waits for this one, without a clock: it goes only as the whole bus goes."""

UNREPEATED: Final = "history.run.step_writing"
"""Arms a failed effect, and nothing else ever does but the wake after a lost bus."""

TAKEN_ALONG: Final = 0.1

ACK_WAIT_SECONDS: Final = max(durable.ack_wait for durable in DURABLES).total_seconds()

SETTINGS: Final = Settings(
    postgres_dsn="postgresql://simulated",
    nats_url="nats://simulated",
    scheduler_tick_seconds=2.0,
    scheduler_lease_seconds=9.0,
    runner_idle_seconds=5.0,
    runner_lease_seconds=30.0,
    runner_renew_seconds=10.0,
    drain_seconds=5.0,
    effect_calls_per_server=2,
)

SECRETS: Final = Secrets(
    overrides={"github_mcp_url": "http://target", "github_mcp_token": "token", "jira_webhook_secret": "secret"}
)

Build = Callable[[Tools, Process], Service | None]
"""Builds a service on its connections; None for a process that only has them."""


class World:
    """One simulation. `trace` holds (seconds, who, what), `records` what was written at the target.

    `shows_records` says whether the target answers who asks for them. While `up` is not set, no process begins.
    """

    def __init__(self, loop: VirtualLoop, random: Random, store: MemoryStore) -> None:
        self.loop = loop
        self.random = random
        self.store = store
        self.broker = MemoryBroker()
        self.faults: Profile = QUIET
        self.auditor = Auditor(store, loop.time)
        self.replicas: list[Replica] = []
        self.trace: list[tuple[float, str, str]] = []
        self.counts: Counter[str] = Counter()
        self.records: list[JsonObject] = []
        self.shows_records = False
        self.up = asyncio.Event()
        self.up.set()
        self.steps = 0
        self.closed = False
        self._apart: set[asyncio.Task[Any]] = set()
        self._epoch = store.clock
        self._shift = timedelta(0)
        self._database_back = 0.0
        self._bus_back = 0.0
        self._failed: asyncio.Future[Any] = loop.create_future()

    # Time

    def sync(self) -> None:
        """Put the database's clock where it is now."""
        self.store.clock = self._epoch + timedelta(seconds=self.loop.seconds) + self._shift

    def now(self) -> datetime:
        self.sync()
        return self.store.clock

    def jump(self, by: timedelta) -> None:
        self._shift += by

    # Chance

    def hits(self, chance: float) -> bool:
        return chance > 0.0 and self.random.random() < chance

    def pause(self) -> float:
        """How long a call takes: milliseconds, now and then seconds."""
        if self.hits(self.faults.slow):
            return self.random.random() * self.random.choice((0.1, 1.0, 8.0))
        return self.random.random() * 0.004

    def loses(self, subject: str) -> bool:
        if subject.startswith(LOSABLE) and subject != KEPT and self.hits(self.faults.lost_message):
            self.count("lost message")
            return True
        return False

    def takes_along(self, subject: str) -> bool:
        """Whether the bus loses the storage of its facts right after it has taken this one, before anybody has it."""
        unrepeated = subject.startswith(UNREPEATED) and "wipe_bus" in self.faults.nemeses
        if unrepeated and "HISTORY" in self.broker.incarnations() and self.hits(TAKEN_ALONG):
            self.count("wiped with a fact")
            self.broker.delete_stream("HISTORY")
            return True
        return False

    def database_is_away(self) -> bool:
        return self.loop.seconds < self._database_back

    def bus_is_away(self) -> bool:
        return self.loop.seconds < self._bus_back

    def take_database(self, seconds: float) -> None:
        self._database_back = self.loop.seconds + seconds

    def take_bus(self, seconds: float) -> None:
        self._bus_back = self.loop.seconds + seconds

    # What happened

    def step(self, process: Process, what: str) -> None:
        self.steps += 1
        self.trace.append((self.loop.seconds, process.name, what))

    def note(self, who: str, what: str) -> None:
        self.trace.append((self.loop.seconds, who, what))

    def count(self, fault: str) -> None:
        self.counts[fault] += 1

    def audit(self, judge: Callable[[], R]) -> R:
        """Ask the auditor from inside of a process, which must not get hold of what it says."""
        try:
            return judge()
        except Violation as violation:
            self.broken(violation)
            raise Crash from None

    def fail(self, why: str) -> None:
        """Something that nobody awaits has gone wrong."""
        self.broken(Violation(why))

    def broken(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    async def until(self, done: Awaitable[T]) -> T:
        """Wait for something, or for the first failure of anything."""
        task: asyncio.Future[Any] = asyncio.ensure_future(done)
        await asyncio.wait([task, self._failed], return_when=asyncio.FIRST_COMPLETED)
        if self._failed.done():
            task.cancel()
            self._failed.result()
        return cast(T, await task)

    def beyond(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin something of a server. Who waits for it may be gone when it ends."""
        task = self.loop.create_task(work, context=_outside())
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return task

    def apart(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Begin something of the world outside. What it raises ends the simulation."""
        task = self.loop.create_task(work, name=name, context=_outside())
        self._apart.add(task)
        task.add_done_callback(self._ended)
        return task

    async def end(self) -> None:
        """Stop everything, so that nothing is left behind when the loop is closed."""
        self.closed = True
        processes = [replica.process for replica in self.replicas if replica.process is not None]
        for task in self._apart:
            task.cancel()
        for process in processes:
            process.alive = False
            process.thaw()
        for process in processes:
            await self._reap(process)
        await asyncio.gather(*self._apart, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._apart.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broken(error)

    # Processes

    def stall(self, process: Process) -> None:
        """Freeze a process for a while. The bus hands what it holds to others whenever ack_wait has passed."""
        if process.alive and not process.frozen:
            self.count("freeze")
            self.note(process.name, "freezes")
            process.freeze()
            seconds = self.random.choice((3.0, 20.0, 60.0, 200.0)) * self.random.random()
            self.apart(self._thaw(process, self.loop.seconds + seconds), f"thaw of {process.name}")

    async def _thaw(self, process: Process, at: float) -> None:
        while process.frozen and self.loop.seconds < at:
            await asyncio.sleep(min(ACK_WAIT_SECONDS, max(at - self.loop.seconds, 0.001)))
            process.bus.lapse()
        process.thaw()

    def reap(self, process: Process) -> None:
        """Bury a process that died, and let its replica begin another one."""
        self.apart(self._reap(process), f"end of {process.name}")
        for replica in self.replicas:
            if replica.process is process:
                replica.process = None
                self.apart(replica.begin_later(), f"restart of {replica.name}")

    async def _reap(self, process: Process) -> None:
        await process.bus.crash()
        for _ in range(20):
            tasks = [task for task in process.tasks if not task.done()]
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        raise Violation(f"{process.name} lives on after its end: {[task.get_name() for task in tasks]}")

    @property
    def door(self) -> Process | None:
        """The api as callers meet it; None while it is down."""
        return next((r.process for r in self.replicas if r.name == "api" and r.process and r.process.alive), None)


class Replica:
    """A place where one process of a service runs, then another."""

    def __init__(self, world: World, name: str, build: Build) -> None:
        self.world = world
        self.name = name
        self.process: Process | None = None
        self.tools: Tools | None = None
        self._build = build
        self._service: Service | None = None
        self._count = 0

    def begin(self) -> None:
        self._count += 1
        process = self.process = Process(self.world, f"{self.name}.{self._count}")
        self.world.note(process.name, "begins")
        process.spawn(self._boot(process))

    async def drain(self) -> None:
        """Stop as a deployment stops a process, then begin another one."""
        process, service = self.process, self._service
        if process is None or service is None or not process.alive:
            return
        self.world.note(process.name, "drains")
        stopping = process.spawn(service.stop())
        await asyncio.wait({stopping}, timeout=30.0)
        process.kill("at the end of its drain")

    async def begin_later(self) -> None:
        await asyncio.sleep(self.world.random.choice((0.05, 0.5, 5.0, 20.0)) * self.world.random.random())
        await self.world.up.wait()
        self.begin()

    async def _boot(self, process: Process) -> None:
        store, bus = SimStore(process), SimBus(process)
        tools = Tools(settings=SETTINGS, secrets=SECRETS, pool=None, store=store, bus=bus)
        self._service = self._build(tools, process)
        self.tools = tools
        if self._service is None:
            await bus.start()
        else:
            await self._service.start()


def _outside() -> Context:
    """Code of no process."""
    context = copy_context()
    context.run(TASKS.set, None)
    return context
