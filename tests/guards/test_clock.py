"""Every comparison of times uses the database's clock: a process whose own is off harms nobody."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

import pytest

from contracts.base import BlobRef
from contracts.events.run import RunCreated, RunStarted, RunSuspended, Trigger, UserRef
from libs.domain import run
from libs.domain.core import NOTHING, Category, Decided, facts
from libs.owner import Item, Owner, Publisher
from libs.process import actor
from tests.support.postgres import Database
from tests.support.record import ListeningBus, Record, open_record

BEHIND: Final = timedelta(seconds=60)
WATCHDOG: Final = timedelta(seconds=30)
WATCHED: Final[Category[run.State]] = replace(run.CATEGORY, wake_at=lambda _state, now: now + WATCHDOG)


@pytest.fixture
async def record(database: Database) -> AsyncIterator[Record]:
    async with open_record(database) as record:
        yield record


def decide(command: str, _state: run.State, now: datetime) -> Decided:
    return facts(RunSuspended(at=now, reason="asked")) if command == "suspend" else NOTHING


def created_run(at: datetime) -> RunCreated:
    """The first fact of a run."""
    return RunCreated(
        at=at,
        definition_id="trial",
        hash="0" * 64,
        bundle=BlobRef(digest="1" * 64, bytes=2),
        context={},
        initiated_by=UserRef(id=uuid4(), email="dana@example.com"),
        trigger=Trigger(kind="manual"),
    )


async def watched_run(record: Record) -> UUID:
    """A run that is to be looked at again after `WATCHDOG`."""
    run_id, now = uuid4(), await record.store.now()
    await record.plant(WATCHED, run_id, created_run(now), RunStarted(at=now))
    return run_id


@pytest.mark.parametrize("command", ["look", "suspend"])
async def test_a_process_that_is_behind_moves_a_due_wake_on_and_does_not_loop(record: Record, command: str) -> None:
    """Whether it has something to say or not: judged by its own clock the stream would be due at once again."""
    run_id = await watched_run(record)
    await record.shift(BEHIND)  # from here on the clock of this process is behind
    assert [due.stream_id for due in await record.store.due("run", limit=10)] == [run_id]
    owner = Owner(WATCHED, decide, store=record.store, publisher=Publisher(ListeningBus(), record.store))
    await owner.handle([Item(stream_id=run_id, command=command, actor=actor("planner"), causation=run_id)])
    assert await record.store.due("run", limit=10) == []


async def test_facts_are_dated_by_the_database(record: Record) -> None:
    run_id = await watched_run(record)
    await record.shift(BEHIND)
    before = await record.store.now()
    owner = Owner(WATCHED, decide, store=record.store, publisher=Publisher(ListeningBus(), record.store))
    await owner.handle([Item(stream_id=run_id, command="suspend", actor=actor("planner"), causation=run_id)])
    recorded = (await record.store.load("run", {run_id: 0})).streams[run_id].events[-1]
    assert before <= recorded.event.at <= await record.store.now()
