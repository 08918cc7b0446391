"""A caller whose reply was lost sends the same command again, whatever happened since; another gets the conflict."""

from collections.abc import AsyncIterator
from datetime import datetime
from uuid import UUID, uuid4

import pytest

from contracts.base import Actor
from contracts.errors import Rejected
from contracts.events.run import RunResumed, RunSuspended
from libs.domain import run
from libs.domain.core import Decided, facts
from libs.owner import Done, Item, Owner, Publisher
from tests.guards.test_clock import created_run
from tests.support.postgres import Database
from tests.support.record import ListeningBus, Record, open_record


@pytest.fixture
async def record(database: Database) -> AsyncIterator[Record]:
    async with open_record(database) as record:
        yield record


def suspend(_command: str, state: run.State, now: datetime) -> Decided:
    if state.status == "suspended":
        raise Rejected("run.suspended", "it is suspended already", status=409)
    return facts(RunSuspended(at=now, reason="asked"))


def sent(run_id: UUID, command_id: UUID) -> Item[str]:
    by = Actor(kind="user", id=UUID(int=1), name="dana@example.com")
    return Item(stream_id=run_id, command="suspend", actor=by, causation=command_id)


def replica(record: Record) -> Owner[run.State, str]:
    return Owner(run.CATEGORY, suspend, store=record.store, publisher=Publisher(ListeningBus(), record.store))


async def test_the_same_command_is_known_again_by_every_replica_and_another_is_refused(record: Record) -> None:
    run_id, command_id = uuid4(), uuid4()
    await record.plant(run.CATEGORY, run_id, created_run(await record.store.now()))
    first, other = replica(record), replica(record)
    (done,) = await first.handle([sent(run_id, command_id)])
    assert isinstance(done, Done)
    for owner in (first, other):
        (again,) = await owner.handle([sent(run_id, command_id)])
        assert isinstance(again, Done)
        assert (again.version, again.changed) == (done.version, False)
        (refused,) = await owner.handle([sent(run_id, uuid4())])
        assert isinstance(refused, Rejected)
        assert refused.problem().status == 409


async def test_a_command_is_not_carried_out_again_after_what_it_did_was_undone(record: Record) -> None:
    run_id, command_id = uuid4(), uuid4()
    await record.plant(run.CATEGORY, run_id, created_run(await record.store.now()))
    await replica(record).handle([sent(run_id, command_id)])
    await record.plant(run.CATEGORY, run_id, RunResumed(at=await record.store.now()))
    await replica(record).handle([sent(run_id, command_id)])
    assert await record.types("run", run_id) == ["run.created", "run.suspended", "run.resumed"]
