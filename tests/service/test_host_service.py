"""The order in which a service stops: nothing new, what is in hand, then the bus, its duties, its connections."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from contracts.errors import Unavailable
from libs.bus.port import Message
from libs.config import Secrets, Settings
from libs.eventstore.memory import MemoryStore
from libs.process import Service, Tools
from tests.support.record import ListeningBus


@dataclass
class TellingBus(ListeningBus):
    """Notes what it is asked to do."""

    steps: list[str] = field(default_factory=list)

    async def quiesce(self) -> None:
        self.steps.append("quiesce")

    async def stop(self) -> None:
        self.steps.append("stop")
        await super().stop()

    async def publish(self, messages: Sequence[Message]) -> None:
        await super().publish(messages)
        self.steps.append("publish")


async def test_a_service_stops_in_order_and_whatever_fails() -> None:
    bus = TellingBus()
    settings = Settings(postgres_dsn="postgresql:///unused", nats_url="nats://unused")
    tools = Tools(settings=settings, secrets=Secrets(), pool=None, store=MemoryStore(), bus=bus)

    async def duty() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            bus.steps.append("duty")

    async def finish() -> None:
        await bus.publish([Message("history.attempt.succeeded", b"", id="1")])

    async def fail() -> None:
        raise Unavailable("postgres.unavailable", "the database is away")

    async def last() -> None:
        bus.steps.append("last")

    service = Service("runner", tools, duties=[duty], drains=[fail, finish], on_stop=[fail, last])
    await service.start()
    assert (await service.ready()).started
    await asyncio.sleep(0)
    await service.stop()
    assert bus.steps == ["quiesce", "publish", "stop", "duty", "last"]
    assert not (await service.ready()).started
