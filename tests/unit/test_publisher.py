"""A bus that is there and acknowledges nothing holds up one caller at a time, and is found again when it does."""

import asyncio
from collections.abc import Sequence
from uuid import uuid4

import pytest

from contracts.base import Actor, Metadata
from contracts.errors import Unavailable
from libs.bus.port import Message
from libs.eventstore.memory import MemoryStore
from libs.eventstore.port import BatchResult, OutboxToken, Written
from libs.owner import publisher
from tests.support.record import ListeningBus


class FullBus(ListeningBus):
    """Waits before it says no, as a server without room does, while it is `full`."""

    full = True
    tried = 0

    async def publish(self, messages: Sequence[Message]) -> None:
        self.tried += 1
        if self.full:
            await asyncio.sleep(0)
            raise Unavailable("bus.no_ack", "no acknowledgement came")
        await super().publish(messages)


def result() -> BatchResult:
    run = uuid4()
    metadata = Metadata(
        tenant_group=uuid4(),
        tenant=uuid4(),
        actor=Actor(kind="system", name="planner"),
        correlation=run,
        causation=uuid4(),
    )
    return BatchResult((), (Written("run", run, 1, "run.created", metadata),), 1, OutboxToken(1, 1))


async def test_one_at_a_time_waits_for_a_bus_that_does_not_acknowledge(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 0.0
    monkeypatch.setattr(publisher, "monotonic", lambda: seconds)
    bus = FullBus()
    rings = publisher.Publisher(bus, MemoryStore())
    await rings.publish(result())
    await asyncio.gather(*(rings.publish(result()) for _ in range(20)))
    assert bus.tried == 1, "who has just been told does not ask"
    seconds += publisher.TRY_AGAIN_SECONDS
    await asyncio.gather(*(rings.publish(result()) for _ in range(20)))
    assert bus.tried == 2, "one asks for all"
    bus.full = False
    seconds += publisher.TRY_AGAIN_SECONDS
    for _ in range(3):
        await rings.publish(result())
    assert len(bus.published) == 3
