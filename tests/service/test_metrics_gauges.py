"""Gauges of the record: shown by the scheduler that leads and by no other, never stale, exact across transactions."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from contracts.base import Event
from contracts.events.run import (
    RunCancelled,
    RunCreated,
    RunParked,
    RunResumed,
    RunStarted,
    RunSuspended,
    RunUnparked,
    Trigger,
    UserRef,
)
from libs.canonical import blob
from libs.domain import run
from libs.telemetry.metrics import RECORD, RecordFigures
from services.scheduler.app import build
from services.scheduler.gauges import Gauges
from services.scheduler.lease import Lease
from tests.support.metrics import value
from tests.support.postgres import Database
from tests.support.record import ListeningBus, Record, eventually, open_record

REF, _ = blob({})


@pytest.fixture
async def record(database: Database) -> AsyncIterator[Record]:
    async with open_record(database) as record:
        yield record


@asynccontextmanager
async def unfinished_transaction(database: Database) -> AsyncIterator[None]:
    """Somebody's transaction that has written and not ended: it is older than whatever is written meanwhile."""
    connection = await asyncpg.connect(database.owner_dsn)
    try:
        async with connection.transaction():
            await connection.execute("select pg_current_xact_id()")
            yield
    finally:
        await connection.close()


async def created(record: Record) -> tuple[RunCreated, RunStarted]:
    now = await record.store.now()
    first = RunCreated(
        at=now,
        definition_id="trial",
        hash="0" * 64,
        bundle=REF,
        context={},
        initiated_by=UserRef(id=uuid4(), email="sam@example.com"),
        trigger=Trigger(kind="manual"),
    )
    return first, RunStarted(at=now)


async def plant(record: Record, *runs: UUID) -> None:
    """Write runs that run, in one statement."""
    facts = await created(record)
    streams: dict[UUID, tuple[Event, ...]] = dict.fromkeys(runs, facts)
    await record.plant_all(run.CATEGORY, streams)


async def runs_shown(gauges: Gauges, figures: RecordFigures) -> Mapping[str, float]:
    await gauges.look()
    return {
        sample.labels["state"]: sample.value
        for family in figures.collect()
        for sample in family.samples
        if sample.name == "workflow_runs" and sample.value
    }


def leading(record: Record) -> tuple[Gauges, RecordFigures]:
    """Gauges of a scheduler of its own."""
    figures = RecordFigures()
    return Gauges(record.pool, Lease(record.store, uuid4(), length=timedelta(seconds=10)), shown=figures), figures


async def shows(gauges: Gauges, figures: RecordFigures, expected: Mapping[str, float]) -> None:
    """Look until these are the figures: the server's own transactions may hold a look back for a moment."""

    async def shown() -> bool:
        return await runs_shown(gauges, figures) == expected

    await eventually(shown)


async def test_a_run_that_goes_to_and_fro_is_counted_once(record: Record) -> None:
    gauges, figures = leading(record)
    assert await runs_shown(gauges, figures) == {}
    run_id, now = uuid4(), await record.store.now()
    await plant(record, run_id, uuid4())
    await shows(gauges, figures, {"running": 2})
    await record.plant(run.CATEGORY, run_id, RunParked(at=now, on="decision"))
    await shows(gauges, figures, {"running": 1, "waiting_decision": 1})
    await record.plant(run.CATEGORY, run_id, RunUnparked(at=now), RunParked(at=now, on="timer"))
    await shows(gauges, figures, {"running": 1, "waiting_timer": 1})
    await record.plant(run.CATEGORY, run_id, RunSuspended(at=now, reason="a look"))
    await record.plant(run.CATEGORY, run_id, RunResumed(at=now))
    await shows(gauges, figures, {"running": 2})
    await record.plant(run.CATEGORY, run_id, RunCancelled(at=now, reason="enough"))
    await shows(gauges, figures, {"running": 1, "cancelled": 1})


async def test_what_an_unfinished_transaction_holds_back_is_counted_once_it_ends(
    record: Record, database: Database
) -> None:
    counting_on, figures = leading(record)
    first, second = uuid4(), uuid4()
    await plant(record, first)
    await shows(counting_on, figures, {"running": 1})
    async with unfinished_transaction(database):
        await plant(record, second)
        await record.plant(run.CATEGORY, first, RunParked(at=await record.store.now(), on="event"))
        assert await runs_shown(counting_on, figures) == {"running": 1}
        # Another one that begins to count now sees the new heads, and must not count their facts twice later.
        await record.shift(timedelta(seconds=11))
        counting_anew, others = leading(record)
        assert await runs_shown(counting_anew, others) == {"running": 1}
        await plant(record, uuid4())
        assert await runs_shown(counting_anew, others) == {"running": 1}
    await shows(counting_anew, others, {"running": 2, "waiting_event": 1})


async def test_figures_stay_right_while_many_write(record: Record) -> None:
    gauges, figures = leading(record)
    done = asyncio.Event()

    async def write(number: int) -> None:
        runs = [uuid4() for _ in range(25)]
        await plant(record, *runs)
        for run_id in runs[: number + 1]:
            await record.plant(run.CATEGORY, run_id, RunCancelled(at=await record.store.now(), reason="enough"))

    async def watch() -> list[float]:
        totals = []
        while not done.is_set():
            totals.append(sum((await runs_shown(gauges, figures)).values()))
        return totals

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(write(number) for number in range(8)))
    done.set()
    totals = await watching
    assert totals == sorted(totals)
    assert all(total % 25 == 0 for total in totals)  # whole statements, nothing by halves
    await shows(gauges, figures, {"running": 200 - 36, "cancelled": 36})


async def test_a_new_era_is_counted_anew(record: Record, database: Database, owner_pool: asyncpg.Pool) -> None:
    gauges, figures = leading(record)
    await plant(record, uuid4())
    await shows(gauges, figures, {"running": 1})
    await owner_pool.execute("insert into eras(era, reason) values (2, 'restored')")
    async with open_record(database) as restarted:
        await plant(restarted, uuid4())
        await shows(gauges, figures, {"running": 2})
        await plant(restarted, uuid4())
        await shows(gauges, figures, {"running": 3})


async def test_only_who_leads_shows_figures(record: Record) -> None:
    first, figures = leading(record)
    second, others = leading(record)
    await plant(record, uuid4())
    await shows(first, figures, {"running": 1})
    await second.look()
    assert list(others.collect()) == []

    await record.shift(timedelta(seconds=11))
    await shows(second, others, {"running": 1})
    # The first learns at its next renewal that it leads no more; until then its figures are true all the same.

    async def hidden() -> bool:
        await first.look()
        return not list(figures.collect())

    await eventually(hidden)


async def test_figures_that_cannot_be_read_are_not_shown(record: Record) -> None:
    tools = await record.tools(ListeningBus())
    figures = RecordFigures()
    gauges = Gauges(tools.pool, Lease(record.store, uuid4(), length=timedelta(seconds=10)), shown=figures)
    await gauges.look()
    assert list(figures.collect())
    await tools.require_pool().close()
    await gauges.look()
    assert list(figures.collect()) == []


async def test_a_scheduler_shows_figures_while_it_runs_and_none_afterwards(record: Record) -> None:
    await plant(record, uuid4())
    service = build(await record.tools(ListeningBus(), scheduler_tick_seconds=0.01))
    await service.start()
    try:

        async def shown() -> bool:
            return value("workflow_runs", state="running") == 1

        await eventually(shown)
    finally:
        await service.stop()
    assert list(RECORD.collect()) == []
