"""Whoever asks is patient with an owner that is being replaced, and no longer than it said."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from contracts.base import Principal
from contracts.commands import SuspendRun
from contracts.errors import Unavailable
from contracts.replies import Reply, RunChanged
from libs.bus.memory import MemoryBroker, MemoryBus
from libs.process.asks import ask

DONE = RunChanged(run_id=uuid4(), version=2, state="suspended")
AWAY = timedelta(seconds=0.5)
"""Longer than it takes to be told three times that nobody is there."""


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
async def asking(broker: MemoryBroker) -> AsyncIterator[MemoryBus]:
    bus = MemoryBus(broker, name="api")
    await bus.start()
    yield bus
    await bus.stop()


def command() -> SuspendRun:
    who = Principal(kind="user", id=uuid4(), name="ada@example.com", tenant_group=uuid4(), tenant=uuid4())
    return SuspendRun(
        command_id=uuid4(), deadline=datetime.now(UTC) + timedelta(minutes=1), principal=who, run_id=DONE.run_id
    )


async def test_an_owner_that_is_back_in_time_is_asked_again(broker: MemoryBroker, asking: MemoryBus) -> None:
    owner = MemoryBus(broker, name="planner")

    async def answer(_subject: str, _data: bytes, _headers: object) -> bytes:
        return Reply[RunChanged](result=DONE).model_dump_json().encode()

    owner.answer(SuspendRun.subject, answer)
    asked = asyncio.create_task(ask(asking, command(), RunChanged, timeout=10 * AWAY))
    _, waits = await asyncio.wait({asked}, timeout=AWAY.total_seconds())
    assert waits, "nobody is there yet"
    await owner.start()
    assert await asked == DONE
    await owner.stop()


async def test_an_owner_that_stays_away_is_not_waited_for_any_longer(asking: MemoryBus) -> None:
    loop, asked = asyncio.get_running_loop(), command()
    began = loop.time()
    with pytest.raises(Unavailable) as refused:
        await ask(asking, asked, RunChanged, timeout=AWAY)
    assert (refused.value.code, refused.value.extra) == ("ask.unanswered", {"command_id": str(asked.command_id)})
    assert loop.time() - began < 10 * AWAY.total_seconds()
