"""Eras on PostgreSQL: who begins one, who is refused from there on, and which runs are older."""

from datetime import timedelta

import asyncpg
import pytest

from contracts.errors import Unavailable
from contracts.events.run import RunForked
from libs.eventstore.eras import ENDED, Begun, begin_era
from libs.eventstore.memory import MemoryStore
from libs.eventstore.postgres import PostgresStore
from libs.ids import mint
from libs.postgres.pool import open_pool
from tests.conformance.test_store_samples import AT, append, created, started
from tests.support.postgres import Database, World


async def test_an_era_is_begun_once_for_each_restore(database: Database, pool: asyncpg.Pool) -> None:
    assert await begin_era(database.owner_dsn, reason="restored") == Begun(2, is_new=True)
    assert await begin_era(database.owner_dsn, reason="restored, again") == Begun(2, is_new=False)
    await PostgresStore(pool).append("run", [append("run", mint(), created())])
    assert await begin_era(database.owner_dsn, reason="another restore") == Begun(3, is_new=True)
    rows = await pool.fetch("select era, reason from eras order by era")
    assert [tuple(row) for row in rows] == [(1, "installed"), (2, "restored, again"), (3, "another restore")]


async def test_an_era_forgets_the_bus_and_who_led(database: Database, pool: asyncpg.Pool) -> None:
    store = PostgresStore(pool)
    await store.record_incarnations({"HISTORY": "then"})
    await begin_era(database.owner_dsn, reason="restored")
    assert await PostgresStore(pool).incarnations() == {}


@pytest.mark.parametrize("written", [True, False], ids=["a new one", "the same number anew"])
async def test_who_knew_an_earlier_era_appends_nothing(
    database: Database, pool: asyncpg.Pool, *, written: bool
) -> None:
    if not written:
        await begin_era(database.owner_dsn, reason="the first of this number")
    old = PostgresStore(pool)
    assert await old.era_goes_on()
    if written:
        await old.append("run", [append("run", mint(), created())])
    await begin_era(database.owner_dsn, reason="restored")
    assert not await old.era_goes_on()
    before = await pool.fetchval("select count(*) from workflow_history")
    run = mint()
    with pytest.raises(Unavailable) as refused:
        await old.append("run", [append("run", run, created())])
    assert refused.value.code == ENDED
    assert await pool.fetchval("select count(*) from workflow_history") == before
    assert await pool.fetchval("select count(*) from unpublished where era > 1") == 0
    assert await old.heads("run", [run]) == {}
    assert (await PostgresStore(pool).append("run", [append("run", run, created())])).era == 2


async def test_the_role_of_services_may_not_begin_eras(database: Database) -> None:
    with pytest.raises(Exception, match="permission denied"):
        await begin_era(database.app_dsn, reason="on my own")
    pool = await open_pool(database.app_dsn, application_name="tests")
    assert await pool.fetchval("select max(era) from eras") == 1
    await pool.close()


async def test_runs_of_earlier_eras_and_their_forks(world: World, request: pytest.FixtureRequest) -> None:
    old, fork, fork_of_fork, again, new = (mint() for _ in range(5))
    store = world.store
    await store.append("run", [append("run", old, created(), started())])
    if isinstance(store, PostgresStore):
        await begin_era(request.getfixturevalue("database").owner_dsn, reason="restored")
        store = PostgresStore(request.getfixturevalue("pool"))
    else:
        store.begin_era()
    for run, parent in ((fork, old), (fork_of_fork, fork)):
        forked = RunForked(at=AT, parent=parent, at_version=2, effects={})
        await store.append("run", [append("run", run, created(parent=parent), forked)])
    await store.append("run", [append("run", again, created(parent=old), started()), append("run", new, created())])
    everyone = {old, fork, fork_of_fork, again, new, mint()}
    assert await store.of_earlier_eras(everyone) == {old, fork, fork_of_fork}
    assert await store.of_earlier_eras([]) == frozenset()
    assert (await store.era()).number == 2


async def test_the_store_in_memory_begins_eras_alike() -> None:
    store = MemoryStore()
    assert store.begin_era() == Begun(2, is_new=True)
    assert store.begin_era() == Begun(2, is_new=False)
    await store.append("run", [append("run", mint(), created())])
    assert store.begin_era() == Begun(3, is_new=True)


async def test_what_was_written_after_a_dump_is_gone_with_its_restore() -> None:
    store, changed, lost = MemoryStore(), mint(), mint()
    await store.append("run", [append("run", changed, created())])
    await store.record_incarnations({"WORK": "1"})
    dump = store.dump()
    rows, history = dict(store.rows["run"]), list(store.history)
    for _ in range(2):
        before = (await store.load("run", {changed: 0})).streams[changed]
        await store.append("run", [append("run", before, started()), append("run", lost, created())])
        assert len(store.history) == 3

        store.restore(dump)
        assert (store.rows["run"], store.history) == (rows, history)
        assert len(await store.unpublished(older_than=timedelta(0), limit=9)) == 1
        loaded = (await store.load("run", {changed: 0, lost: 0})).streams
        assert (loaded[changed].version, loaded[lost].version) == (1, 0)
        assert store.begin_era() == Begun(2, is_new=True)
        assert await store.incarnations() == {}
