"""What writers do to each other on real PostgreSQL. That a statement waits, the server itself says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from libs.domain.core import Guard
from libs.eventstore import tail
from libs.eventstore.port import Append, Claimed
from libs.eventstore.postgres import PostgresStore
from libs.ids import mint
from libs.postgres import open_pool
from tests.conformance.test_store_samples import (
    LEASE,
    append,
    birth,
    created,
    declared,
    queued,
    stage,
    started,
    succeeded,
)
from tests.support.postgres import Database

RUNNING = frozenset({"running"})
SUBJECT = "work.echo.default"


@pytest.fixture
async def store(pool: asyncpg.Pool) -> PostgresStore:
    return PostgresStore(pool)


async def until_somebody_waits(owner_pool: asyncpg.Pool) -> None:
    """Return once a statement of the services' role waits for a lock."""
    waiting = (
        "select count(*) from pg_stat_activity where datname = current_database()"
        " and usename = 'minutebook_app' and wait_event_type = 'Lock'"
    )
    async with asyncio.timeout(10):
        while not await owner_pool.fetchval(waiting):  # noqa: ASYNC110 - the event is inside the server
            await asyncio.sleep(0.005)


@asynccontextmanager
async def uncommitted(owner_pool: asyncpg.Pool, sql: str, *arguments: object) -> AsyncIterator[None]:
    """Run SQL in a transaction that commits at the end of the block."""
    async with owner_pool.acquire() as connection, connection.transaction():
        await connection.execute(sql, *arguments)
        yield


async def test_of_many_writers_of_a_version_exactly_one_wins(store: PostgresStore) -> None:
    """Overlapping batches in every order: no deadlock, and each stream has one winner a version."""
    runs = [mint() for _ in range(12)]
    await store.append("run", [append("run", run, created(), started()) for run in runs])

    for turn in range(5):
        heads = (await store.load("run", dict.fromkeys(runs, 0))).streams

        def batch(writer: int, heads=heads, turn=turn) -> list[Append]:  # type: ignore[no-untyped-def]
            chosen = [runs[(writer * 5 + n * 7) % len(runs)] for n in range(8)]
            births = {run: (birth("attempt", mint(), queued(run), work_subject=SUBJECT),) for run in chosen}
            return [
                append("run", heads[run], stage(f"{turn}.{writer}"), births=births[run])
                for run in dict.fromkeys(chosen)
            ]

        results = await asyncio.gather(*(store.append("run", batch(writer)) for writer in range(8)))
        wins = [fate.stream_id for result in results for fate in result.appended if fate.fate == "won"]
        assert len(wins) == len(set(wins))
        assert set(wins) == set(runs)
        after = (await store.load("run", dict.fromkeys(runs, 0))).streams
        assert {stream.version for stream in after.values()} == {turn + 3}
    assert await store.waiting() == {SUBJECT: 5 * len(runs)}


async def test_heads_are_locked_in_order_of_their_ids(store: PostgresStore, owner_pool: asyncpg.Pool) -> None:
    """A writer that waits for the lowest holds none of the others: two of them can never wait for each other."""
    runs = sorted(mint() for _ in range(3))
    await store.append("run", [append("run", run, created(), started()) for run in runs])
    heads = (await store.load("run", dict.fromkeys(runs, 0))).streams
    async with uncommitted(owner_pool, "select from run_heads where stream_id = $1 for update", runs[0]):
        batch = [append("run", heads[run], stage("x")) for run in reversed(runs)]
        writing = asyncio.create_task(store.append("run", batch))
        await until_somebody_waits(owner_pool)
        await owner_pool.execute("select from run_heads where stream_id = any($1) for update nowait", runs[1:])
    assert {fate.fate for fate in (await writing).appended} == {"won"}


async def test_guards_are_locked_in_order_and_before_any_head(store: PostgresStore, owner_pool: asyncpg.Pool) -> None:
    runs, effects = sorted(mint() for _ in range(3)), sorted(mint() for _ in range(3))
    await store.append("run", [append("run", run, created(), started()) for run in runs])
    await store.append("effect", [append("effect", effect, declared(mint())) for effect in effects])
    heads = (await store.load("effect", dict.fromkeys(effects, 0))).streams
    async with uncommitted(owner_pool, "select from run_heads where stream_id = $1 for update", runs[0]):
        batch = [
            append("effect", heads[effect], declared(run), guards=(Guard("run", run, RUNNING),))
            for effect, run in zip(effects, reversed(runs), strict=True)
        ]
        writing = asyncio.create_task(store.append("effect", batch))
        await until_somebody_waits(owner_pool)
        await owner_pool.execute("select from run_heads where stream_id = any($1) for update nowait", runs[1:])
        await owner_pool.execute("select from effect_heads for update nowait")
    assert {fate.fate for fate in (await writing).appended} == {"won"}


async def test_of_many_births_of_a_stream_exactly_one_is_written(store: PostgresStore) -> None:
    attempt = mint()
    births = [
        append("run", run, created(), births=(birth("attempt", attempt, queued(run)),))
        for run in (mint() for _ in range(8))
    ]
    results = await asyncio.gather(*(store.append("run", [parent]) for parent in births))
    assert sum(w.category == "attempt" for result in results for w in result.written) == 1
    assert sum(len(fate.skipped) for result in results for fate in result.appended) == 7


@pytest.mark.parametrize("state", ["cancelled", "running"])
async def test_a_guard_waits_behind_an_uncommitted_change_and_is_judged_by_it(
    store: PostgresStore, owner_pool: asyncpg.Pool, state: str
) -> None:
    run, effect = mint(), mint()
    await store.append("run", [append("run", run, created(), started())])
    guarded = append("effect", effect, declared(run), guards=(Guard("run", run, RUNNING),))

    async with uncommitted(owner_pool, "update run_heads set state = $2 where stream_id = $1", run, state):
        writing = asyncio.create_task(store.append("effect", [guarded]))
        await until_somebody_waits(owner_pool)
    result = await writing
    assert [fate.fate for fate in result.appended] == ["won" if state == "running" else "guarded"]
    assert len(result.written) == (1 if state == "running" else 0)
    assert (await store.load("effect", {effect: 0})).streams[effect].version == len(result.written)


async def test_a_change_waits_behind_a_guard_that_holds(store: PostgresStore, owner_pool: asyncpg.Pool) -> None:
    run = mint()
    await store.append("run", [append("run", run, created(), started())])
    before = (await store.load("run", {run: 0})).streams[run]
    async with uncommitted(owner_pool, "select from run_heads where stream_id = $1 for share", run):
        cancelling = asyncio.create_task(store.append("run", [append("run", before, stage("x"))]))
        await until_somebody_waits(owner_pool)
        assert not cancelling.done()
    assert (await cancelling).appended[0].fate == "won"


async def test_a_loser_that_waited_is_told_the_version_that_beat_it(
    store: PostgresStore, owner_pool: asyncpg.Pool
) -> None:
    """Also when its claim was right: else its owner would take a lost race for a lost claim."""
    effect, claim = mint(), mint()
    await store.append("effect", [append("effect", effect, declared(mint()), set_claim=claim)])
    before = (await store.load("effect", {effect: 0})).streams[effect]
    report = append("effect", before, declared(mint()), claim=claim)
    async with uncommitted(owner_pool, "update effect_heads set version = 2 where stream_id = $1", effect):
        writing = asyncio.create_task(store.append("effect", [report]))
        await until_somebody_waits(owner_pool)
    (fate,) = (await writing).appended
    assert (fate.fate, fate.version) == ("lost", 2)


async def test_a_report_that_waits_behind_a_new_claim_is_refused(
    store: PostgresStore, owner_pool: asyncpg.Pool
) -> None:
    attempt, claim = mint(), mint()
    await store.append("attempt", [append("attempt", attempt, queued(mint()), set_claim=claim)])
    before = (await store.load("attempt", {attempt: 0})).streams[attempt]
    report = append("attempt", before, succeeded(claim), claim=claim, release=True)
    async with uncommitted(
        owner_pool, "update attempt_heads set claim = gen_random_uuid() where stream_id = $1", attempt
    ):
        writing = asyncio.create_task(store.append("attempt", [report]))
        await until_somebody_waits(owner_pool)
    (fate,) = (await writing).appended
    assert (fate.fate, fate.version) == ("lost", before.version)


async def test_each_ready_attempt_is_claimed_once(store: PostgresStore) -> None:
    run = mint()
    attempts = [mint() for _ in range(60)]
    births = tuple(birth("attempt", a, queued(run, number=n), work_subject=SUBJECT) for n, a in enumerate(attempts, 1))
    await store.append("run", [append("run", run, created(), started(), births=births)])

    async def runner() -> list[Claimed]:
        taken: list[Claimed] = []
        while await store.waiting():
            taken += await store.claim([SUBJECT], limit=7, lease=LEASE)
        return taken

    claimed = [c.attempt_id for taken in await asyncio.gather(*(runner() for _ in range(4))) for c in taken]
    assert sorted(claimed) == sorted(attempts)


async def test_a_claim_passes_over_what_another_is_taking(store: PostgresStore, owner_pool: asyncpg.Pool) -> None:
    run, taken, free = mint(), mint(), mint()
    births = tuple(
        birth("attempt", a, queued(run, number=n), work_subject=SUBJECT) for n, a in enumerate((taken, free), 1)
    )
    await store.append("run", [append("run", run, created(), started(), births=births)])
    async with (
        uncommitted(owner_pool, "select from ready where attempt_id = $1 for update", taken),
        asyncio.timeout(10),
    ):
        assert [c.attempt_id for c in await store.claim(None, limit=5, lease=LEASE)] == [free]
    assert [c.attempt_id for c in await store.claim(None, limit=5, lease=LEASE)] == [taken]


async def test_a_claim_waits_behind_an_uncommitted_suspension_and_drops_the_work(
    store: PostgresStore, owner_pool: asyncpg.Pool
) -> None:
    run, attempt = mint(), mint()
    work = birth("attempt", attempt, queued(run), work_subject=SUBJECT)
    await store.append("run", [append("run", run, created(), started(), births=(work,))])
    async with uncommitted(owner_pool, "update run_heads set state = 'suspended' where stream_id = $1", run):
        claiming = asyncio.create_task(store.claim(None, limit=5, lease=LEASE))
        await until_somebody_waits(owner_pool)
    assert await claiming == []
    assert await store.waiting() == {}


async def test_work_that_is_requeued_while_a_claim_looks_is_not_lost(
    store: PostgresStore, owner_pool: asyncpg.Pool
) -> None:
    """A ready row is there, its attempt does not fit, and an uncommitted statement makes it fit."""
    run, attempt = mint(), mint()
    work = birth("attempt", attempt, queued(run), work_subject=SUBJECT)
    await store.append("run", [append("run", run, created(), started(), births=(work,))])
    await owner_pool.execute("update attempt_heads set state = 'running'")
    async with uncommitted(owner_pool, "update attempt_heads set state = 'queued'"):
        claiming = asyncio.create_task(store.claim(None, limit=5, lease=LEASE))
        await until_somebody_waits(owner_pool)
    assert [c.attempt_id for c in await claiming] == [attempt]


async def test_planners_claimers_and_reporters_do_not_deadlock(store: PostgresStore) -> None:
    """Every kind of statement on the same few runs at once; a deadlock would be an `Unavailable`."""
    runs = [mint() for _ in range(4)]
    await store.append("run", [append("run", run, created(), started()) for run in runs])
    reported: set[object] = set()

    async def planner(name: str) -> None:
        for number in range(12):
            heads = (await store.load("run", dict.fromkeys(runs, 0))).streams
            attempts = {run: mint() for run in runs}
            await store.append(
                "run",
                [
                    append(
                        "run",
                        heads[run],
                        stage(f"{name}.{number}"),
                        births=(birth("attempt", attempts[run], queued(run), work_subject=SUBJECT),),
                        ready={attempts[run]: SUBJECT},
                    )
                    for run in runs
                ],
            )

    async def runner() -> None:
        for _ in range(25):
            claims = {c.attempt_id: c.claim for c in await store.claim(None, limit=6, lease=LEASE)}
            await store.renew(claims.items(), lease=LEASE)
            heads = (await store.load("attempt", dict.fromkeys(claims, 0))).streams
            reports = []
            for attempt, claim in claims.items():
                first = heads[attempt].events[0].event
                guard = Guard("run", first.run_id, RUNNING)  # type: ignore[attr-defined]
                report = append("attempt", heads[attempt], succeeded(claim), claim=claim, release=True, guards=(guard,))
                reports.append(report)
            if reports:
                result = await store.append("attempt", reports)
                assert {fate.fate for fate in result.appended} == {"won"}
                reported.update(claims)

    await asyncio.gather(planner("a"), planner("b"), runner(), runner(), runner())
    assert reported


async def test_the_tail_loses_nothing_under_concurrent_writers(store: PostgresStore, pool: asyncpg.Pool) -> None:
    writing = True
    seen: list[tuple[object, int]] = []

    async def reader() -> None:
        cursor = tail.BEGINNING
        while True:
            last = not writing
            facts = await tail.page(pool, cursor, limit=20)
            seen.extend((fact.stream_id, fact.version) for fact in facts)
            cursor = tail.after(facts[-1]) if facts else cursor
            if last and not facts:
                return

    async def writer() -> list[tuple[object, int]]:
        written: list[tuple[object, int]] = []
        for _ in range(20):
            result = await store.append("run", [append("run", mint(), created(), started()) for _ in range(3)])
            written += [(fact.stream_id, fact.version) for fact in result.written]
        return written

    reading = asyncio.create_task(reader())
    written = [fact for facts in await asyncio.gather(*(writer() for _ in range(4))) for fact in facts]
    writing = False
    await reading
    assert len(seen) == len(set(seen)) == len(written)
    assert set(seen) == set(written)


async def test_the_tail_stops_below_an_open_transaction(
    database: Database, store: PostgresStore, pool: asyncpg.Pool, owner_pool: asyncpg.Pool
) -> None:
    """An earlier transaction that commits late is not passed over."""
    early = mint()
    other = await open_pool(database.app_dsn, application_name="tests-late")
    async with uncommitted(owner_pool, "select pg_current_xact_id()"):
        late = await PostgresStore(other).append("run", [append("run", early, created())])
        assert await tail.page(pool) == []
    await other.close()
    assert late.outbox is not None
    facts = [fact async for fact in tail.tail(pool, limit=1)]
    assert [(fact.stream_id, fact.xid) for fact in facts] == [(early, late.outbox.xid)]
