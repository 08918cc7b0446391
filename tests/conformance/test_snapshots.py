"""Snapshots of long streams, on both stores: used where they help, missed by nobody, believed only if they agree."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from contracts.base import Actor
from contracts.errors import Unavailable
from libs.domain import decision, run
from libs.eventstore.port import Load, Snapshot
from libs.eventstore.rebuild import rebuild
from libs.eventstore.snapshots import SNAPSHOT_EVERY, Snapshots, read_states
from libs.eventstore.verify import verify
from libs.ids import mint
from libs.owner import Done, Item, Owner, Publisher, Result
from tests.conformance.test_owner import GROUP, TENANT, decide, item
from tests.support.postgres import World
from tests.support.record import ListeningBus

EVERY = 10
RUNS = {"run": run.CATEGORY}
PERSON = Actor(kind="user", id=uuid4(), name="dana@example.com")


@dataclass
class Watched:
    """Notes what was loaded and kept. `away` refuses to keep."""

    inner: Any
    loads: list[Load] = field(default_factory=list)
    kept: list[Snapshot] = field(default_factory=list)
    away: bool = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def load(self, *arguments: Any, **options: Any) -> Load:
        self.loads.append(await self.inner.load(*arguments, **options))
        return self.loads[-1]

    async def keep_snapshots(self, schema: bytes, snapshots: Sequence[Snapshot]) -> None:
        if self.away:
            raise Unavailable("postgres.away", "the connection was cut")
        await self.inner.keep_snapshots(schema, snapshots)
        self.kept += snapshots


@pytest.fixture
def store(world: World) -> Watched:
    return Watched(world.store)


def owner(store: Any, every: int = EVERY) -> Owner[run.State, str]:
    categories = {"decision": decision.CATEGORY}
    publisher = Publisher(ListeningBus(), store)
    return Owner(run.CATEGORY, decide, store=store, publisher=publisher, categories=categories, snapshot_every=every)


async def grow(runs: Owner[run.State, str], run_id: UUID, facts: int) -> run.State:
    """Start a run that does not exist, and write one fact at a time."""
    (result,) = await runs.handle([item(run_id, "start")])
    for _ in range(facts):
        (result,) = await runs.handle([item(run_id, f"enter:{uuid4()}")])
    return done(result).state


def done(result: Result[run.State]) -> Done[run.State]:
    assert isinstance(result, Done)
    return result


async def test_a_stream_is_kept_when_it_has_grown_enough_and_then_read_from_there(store: Watched) -> None:
    run_id = uuid4()
    written = await grow(owner(store), run_id, 21)
    assert [snapshot.version for snapshot in store.kept] == [10, 20]

    (result,) = await owner(store).handle([item(run_id, "nothing")])
    loaded = store.loads[-1].streams[run_id]
    assert [fact.version for fact in loaded.events] == [21, 22, 23]
    assert (done(result).state, done(result).version) == (written, 23)


async def test_a_short_stream_asks_for_no_statement_more(store: Watched) -> None:
    await grow(owner(store), uuid4(), EVERY - 3)
    assert store.kept == []


async def test_one_append_of_many_facts_is_kept_once(store: Watched) -> None:
    runs, run_ids = owner(store, every=2), [uuid4(), uuid4()]
    await runs.handle([item(run_id, "start") for run_id in run_ids])
    assert {(snapshot.stream_id, snapshot.version) for snapshot in store.kept} == {(i, 2) for i in run_ids}


async def test_it_goes_on_from_a_snapshot_as_from_the_whole(store: Watched) -> None:
    run_id = uuid4()
    await grow(owner(store), run_id, 12)
    other, another = owner(store), owner(store.inner, every=SNAPSHOT_EVERY)
    (kept,) = await other.handle([item(run_id, "enter:late")])
    (whole,) = await another.handle([item(run_id, "nothing")])
    assert done(kept).state == done(whole).state
    assert done(kept).version == done(whole).version == 15


async def test_a_callers_command_is_known_again_from_a_snapshot(store: Watched) -> None:
    """Its reply was lost, and nobody who saw it is left."""
    run_id, sent = uuid4(), uuid4()
    asked = Item(run_id, "flip", PERSON, sent, tenant_group=GROUP, tenant=TENANT)
    await owner(store).handle([item(run_id, "start")])
    await owner(store).handle([asked])
    await grow(owner(store), run_id, 20)
    assert store.kept

    (again,) = await owner(store).handle([asked])
    assert not done(again).changed
    assert store.loads[-1].streams[run_id].snapshot is not None
    (another,) = await owner(store).handle([replace(asked, causation=uuid4())])
    assert done(another).changed


async def test_the_trace_that_a_stream_began_with_comes_back(store: Watched) -> None:
    run_id = uuid4()
    origin, later = (f"00-{n:032x}-{n:016x}-01" for n in (1, 2))
    await owner(store).handle([item(run_id, "start", traceparent=origin)])
    await grow(owner(store), run_id, 20)
    await owner(store).handle([item(run_id, "enter:late", traceparent=later)])
    loaded = (await store.inner.load("run", {run_id: 0})).streams[run_id]
    assert loaded.events[-1].metadata.traceparent == origin


async def test_who_cannot_keep_a_snapshot_goes_on_and_tries_again(store: Watched) -> None:
    run_id, runs = uuid4(), owner(store)
    store.away = True
    await grow(runs, run_id, 10)
    store.away = False
    await runs.handle([item(run_id, "enter:late")])
    assert [snapshot.version for snapshot in store.kept] == [13]


async def test_another_release_reads_none_and_takes_its_place(store: Watched) -> None:
    run_id = uuid4()
    await grow(owner(store), run_id, 10)
    (snapshot,) = store.kept
    await store.inner.keep_snapshots(b"o" * 32, [replace(snapshot, version=11, content=b"{}")])
    await owner(store).handle([item(run_id, "enter:late")])
    assert [kept.version for kept in store.kept] == [10, 13], "the other release's newer one has replaced ours"


async def test_a_snapshot_of_another_history_is_not_read(store: Watched) -> None:
    run_id, snapshots = uuid4(), Snapshots(run.CATEGORY)
    written = await grow(owner(store), run_id, 10)
    (snapshot,) = store.kept
    for wrong in (replace(snapshot, version=11), replace(snapshot, version=99), replace(snapshot, digest=b"?" * 32)):
        await store.inner.keep_snapshots(snapshots.schema, [replace(wrong, content=b'{"state":{}}')])
    (result,) = await owner(store).handle([item(run_id, "nothing")])
    assert done(result).state == written


async def test_a_snapshot_that_cannot_be_read_is_as_good_as_none(store: Watched) -> None:
    run_id, snapshots = uuid4(), Snapshots(run.CATEGORY)
    written = await grow(owner(store), run_id, 10)
    broken = replace(store.kept[0], version=12, digest=(await head(store, run_id)), content=b'{"state":7}')
    await store.inner.keep_snapshots(snapshots.schema, [broken])
    (result,) = await owner(store).handle([item(run_id, "nothing")])
    assert done(result).state == written


async def head(store: Watched, run_id: UUID) -> bytes:
    loaded: Load = await store.inner.load("run", {run_id: 0})
    return loaded.streams[run_id].digest


async def test_readers_see_what_the_owner_holds(store: Watched) -> None:
    long, short = uuid4(), uuid4()
    states = {long: await grow(owner(store), long, 12), short: await grow(owner(store), short, 1)}
    found = await read_states(store.inner, run.CATEGORY, [long, short, uuid4()])
    assert {run_id: state for run_id, (_, state) in found.items()} == states
    assert {run_id: loaded.version for run_id, (loaded, _) in found.items()} == {long: 14, short: 3}
    assert await read_states(store.inner, run.CATEGORY, [long], tenant_group=mint()) == {}


@pytest.fixture
async def kept(world: World, owner_pool: asyncpg.Pool) -> tuple[UUID, run.State]:
    """A run with a snapshot, on PostgreSQL alone."""
    run_id = uuid4()
    return run_id, await grow(owner(world.store), run_id, 12)


@pytest.mark.parametrize("world", ["postgres"], indirect=True)
class TestTheRecord:
    """What keeps and proves the rows."""

    async def test_without_any_all_is_the_same(
        self, world: World, owner_pool: asyncpg.Pool, kept: tuple[UUID, run.State]
    ) -> None:
        run_id, state = kept
        assert (await verify(owner_pool, RUNS)).ok
        assert await owner_pool.execute("delete from snapshots") == "DELETE 1"
        (result,) = await owner(world.store).handle([item(run_id, "nothing")])
        assert done(result).state == state
        assert (await verify(owner_pool, RUNS)).ok

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ("""content = '{"state":{"status":"completed"}}'""", "is not what the history says"),
            ("content = '{'", "is not what the history says"),
            ("version = 9", "is of another history"),
            ("version = 99", "is of another history"),
        ],
    )
    async def test_one_that_disagrees_is_found_and_rebuild_drops_it(
        self, owner_pool: asyncpg.Pool, kept: tuple[UUID, run.State], change: str, said: str
    ) -> None:
        await owner_pool.execute(f"update snapshots set {change}")
        (difference,) = (await verify(owner_pool, RUNS)).differences
        assert (difference.kind, difference.stream_id) == ("snapshot", kept[0])
        assert said in difference.detail
        await rebuild(owner_pool, RUNS)
        assert (await verify(owner_pool, RUNS)).ok
        assert await owner_pool.fetchval("select count(*) from snapshots") == 0

    async def test_services_cannot_change_one(self, pool: asyncpg.Pool, kept: tuple[UUID, run.State]) -> None:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await pool.execute("update snapshots set version = 1")
