"""A process of the product that can die, freeze and come back, and the connections that it works with.

Every call of a connection takes some virtual time, and may meet a fault before and after its effect. The effect itself
is whole, as a statement is. A process that died does nothing any more: whatever it still tries raises `Crash`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from contracts.errors import Unavailable
from contracts.subjects import DurableSpec
from libs.bus.memory import MemoryBus
from libs.bus.port import AskHandler, BatchHandler, Delivered, Disposition, Listener, Message
from tests.simulation.loop import TASKS

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

_LATE_SECONDS_MAX: Final = 20.0

WORST_MOMENT: Final = 10
"""How much likelier than elsewhere a process freezes where it has to be late: with a call announced, or work begun."""


OUTAGE: Final = "postgres.unreachable"
"""The code of what fails for want of a server."""


class Crash(BaseException):
    """This process is dead. Not an `Exception`: nothing of the product may survive it."""


class Process:
    """One incarnation of a service, or of the door. Its tasks are those that its own code began."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.tasks: set[asyncio.Task[Any]] = set()
        self.bus = MemoryBus(world.broker, name=name)
        self._thawed: asyncio.Future[None] | None = None
        self._context = copy_context()
        self._context.run(TASKS.set, self.tasks)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something as a part of this process."""
        if not self.alive:
            work.close()
            raise Crash
        return self.world.loop.create_task(work, context=self._context.copy())

    async def reach(self, what: str) -> None:
        """Come to a call: some time passes, and this may be as far as the process comes."""
        world = self.world
        world.step(self, what)
        if world.hits(world.faults.stall):
            world.stall(self)
        await asyncio.sleep(world.pause())
        await self._alive()
        if world.hits(world.faults.crash):
            self.kill(f"before {what}")
            raise Crash

    async def leave(self, what: str) -> None:
        """Come back from a call, its effect done."""
        world = self.world
        world.audit(world.auditor.look)
        if world.hits(world.faults.crash):
            self.kill(f"after {what}")
            raise Crash
        if world.hits(world.faults.stall):
            world.stall(self)
        if world.hits(world.faults.slow):
            await asyncio.sleep(world.pause())
        await self._alive()

    async def beyond(self, work: Coroutine[Any, Any, T]) -> T:
        """The server's part of a call: what it sets going is no part of this process, and does not end with it."""
        task = self.world.beyond(work)
        await asyncio.wait([task])
        return task.result()

    async def call(self, what: str, effect: Callable[[], Awaitable[T]], *, away: Callable[[], bool]) -> T:
        """Do something with a server: it may be away, or its reply be lost."""
        await self.reach(what)
        world = self.world
        if away() or world.hits(world.faults.refused_call):
            raise Unavailable(OUTAGE, f"{what} did not reach its server")
        world.sync()
        result = await effect()
        await self.leave(what)
        if world.hits(world.faults.lost_reply):
            world.count("lost reply")
            raise Unavailable(OUTAGE, f"the reply to {what} was lost")
        return result

    def freeze(self) -> None:
        """Stop as SIGSTOP stops a process: timers and leases go on without it, and so do its messages."""
        if self._thawed is None:
            self._thawed = self.world.loop.create_future()
            self.bus.lapse()

    def thaw(self) -> None:
        if self._thawed is not None:
            self._thawed.set_result(None)
            self._thawed = None

    @property
    def frozen(self) -> bool:
        return self._thawed is not None

    def kill(self, why: str) -> None:
        """End as `kill -9` ends a process: what it holds of the bus comes again, its tasks end where they are."""
        if not self.alive:
            return
        self.alive = False
        self.world.count("crash")
        self.world.note(self.name, f"dies {why}")
        self.thaw()
        self.world.reap(self)

    async def _alive(self) -> None:
        while self._thawed is not None:
            await asyncio.shield(self._thawed)
        if not self.alive:
            raise Crash


class SimStore:
    """The event store as one process reaches it. Outbox rows are forgotten late, and by this process alone."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._inner = process.world.store
        self._forgotten: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        """Every method of the port, with its faults."""
        method = getattr(self._inner, name)
        process, world = self._process, self._process.world

        async def call(*args: Any, **options: Any) -> Any:
            return await process.call(name, lambda: method(*args, **options), away=world.database_is_away)

        setattr(self, name, call)
        return call

    async def append(self, category: str, appends: Sequence[Any]) -> Any:
        async def effect() -> Any:
            result = await self._inner.append(category, appends)
            await self._forget()
            if category == "effect" and self._process.world.hits(WORST_MOMENT * self._process.world.faults.stall):
                self._process.world.stall(self._process)
            return result

        what = f"append {category} x{len(appends)}"
        return await self._process.call(what, effect, away=self._process.world.database_is_away)

    async def published(self, token: Any) -> None:
        """Put off to the next statement, as the real one does."""
        self._forgotten.append(token)

    async def flush(self) -> None:
        if self._forgotten:
            await self._process.call("flush", self._forget, away=self._process.world.database_is_away)

    async def close(self) -> None:
        return

    async def _forget(self) -> None:
        for token in self._forgotten:
            await self._inner.published(token)
        self._forgotten.clear()


class SimBus:
    """The bus as one process reaches it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._inner = process.bus

    def subscribe(self, durable: DurableSpec, handler: BatchHandler, *, batch_max: int = 200) -> None:
        async def on_batch(batch: Sequence[Delivered]) -> Sequence[Disposition]:
            return await self._deliver(durable, handler, batch)

        self._inner.subscribe(durable, on_batch, batch_max=batch_max)

    def answer(self, subject: str, handler: AskHandler) -> None:
        async def on_ask(asked: str, data: bytes, headers: Mapping[str, str]) -> bytes:
            async def work() -> bytes:
                await self._process.reach(f"hear {asked}")
                reply = await handler(asked, data, headers)
                await self._process.leave(f"reply {asked}")
                return reply

            return await self._process.spawn(work())

        self._inner.answer(subject, on_ask)

    def listen(self, subject: str, listener: Listener) -> None:
        self._inner.listen(subject, listener)

    async def start(self) -> None:
        await self._process.beyond(self._inner.start())

    async def publish(self, messages: Sequence[Message]) -> None:
        world = self._process.world

        async def effect() -> None:
            kept = [message for message in messages if not world.loses(message.subject)]
            if any(world.takes_along(message.subject) for message in kept):
                kept = [message for message in kept if not message.subject.startswith("history.")]
            await self._process.beyond(self._inner.publish(kept))

        what = "publish " + " ".join(message.subject for message in messages)
        await self._process.call(what, effect, away=world.bus_is_away)

    async def ask(self, subject: str, data: bytes, *, headers: Mapping[str, str], timeout: timedelta) -> bytes:
        async def effect() -> bytes:
            return await self._process.beyond(self._inner.ask(subject, data, headers=headers, timeout=timeout))

        return await self._process.call(f"ask {subject}", effect, away=self._process.world.bus_is_away)

    async def usable(self) -> bool:
        return await self._inner.usable()

    async def incarnations(self) -> Mapping[str, str]:
        return await self._asked("incarnations", self._inner.incarnations)

    async def redeclare(self) -> tuple[str, ...]:
        return await self._asked("redeclare", self._inner.redeclare)

    async def overruns(self) -> frozenset[str]:
        return await self._asked("overruns", self._inner.overruns)

    async def quiesce(self) -> None:
        await self._process.beyond(self._inner.quiesce())

    async def stop(self) -> None:
        await self._process.beyond(self._inner.stop())

    async def _asked(self, what: str, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        process = self._process
        return await process.call(what, lambda: process.beyond(ask()), away=process.world.bus_is_away)

    async def _deliver(
        self, durable: DurableSpec, handler: BatchHandler, batch: Sequence[Delivered]
    ) -> Sequence[Disposition]:
        """Hand a batch over: in another order, without some that come later, and with acks that get lost."""
        process, world = self._process, self._process.world
        dispositions: dict[int, Disposition] = {}
        for index in range(len(batch)):
            if world.bus_is_away() or world.hits(world.faults.late_delivery):
                world.count("late delivery")
                late = world.random.uniform(0.01, _LATE_SECONDS_MAX)
                dispositions[index] = Disposition("nak", timedelta(seconds=late))
        order = [index for index in range(len(batch)) if index not in dispositions]
        if world.hits(world.faults.shuffled):
            world.random.shuffle(order)
        if order:
            told = await process.spawn(self._handle(durable, handler, [batch[index] for index in order]))
            for index, disposition in zip(order, told, strict=True):
                if disposition.verdict == "term":
                    world.fail(f"{process.name} dead-lettered {batch[index].subject}: {batch[index].data!r}")
                lost = disposition.verdict == "ack" and world.hits(world.faults.lost_ack)
                dispositions[index] = Disposition("nak", durable.ack_wait) if lost else disposition
                if lost:
                    world.count("lost ack")
        return [dispositions[index] for index in range(len(batch))]

    async def _handle(
        self, durable: DurableSpec, handler: BatchHandler, batch: Sequence[Delivered]
    ) -> Sequence[Disposition]:
        subjects = " ".join(delivered.subject for delivered in batch)
        await self._process.reach(f"deliver {durable.name} {subjects}")
        told = await handler(batch)
        await self._process.leave(f"settle {durable.name} " + " ".join(each.verdict for each in told))
        return told
