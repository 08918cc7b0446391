"""The record and its proof: append-only by trigger and by rights, verification, rebuilding."""

from datetime import timedelta

import asyncpg
import pytest

from contracts.errors import Unavailable
from contracts.events.inbound import InboundReceived
from libs.eventstore import tail
from libs.eventstore.heads import HEADS
from libs.eventstore.mapper import PAYLOAD_BYTES_MAX
from libs.eventstore.port import Difference, Verification
from libs.eventstore.postgres import PostgresStore
from libs.eventstore.rebuild import rebuild
from libs.eventstore.verify import verify
from libs.ids import mint
from tests.conformance.test_store_samples import (
    AT,
    BLOB,
    CATEGORIES,
    GROUP,
    LEASE,
    append,
    birth,
    cancelled,
    created,
    queued,
    stage,
    started,
)

CHANGES = (
    "update workflow_history set type = 'run.forged'",
    "delete from workflow_history",
    "truncate workflow_history",
    "truncate workflow_history_3",
    "update workflow_history_{partition} set type = 'run.forged'",
)


@pytest.fixture
async def store(pool: asyncpg.Pool) -> PostgresStore:
    store = PostgresStore(pool)
    run, attempt = mint(), mint()
    work = birth("attempt", attempt, queued(run), work_subject="work.echo.default")
    long = created(context={"text": "x" * PAYLOAD_BYTES_MAX})
    await store.append("run", [append("run", run, long, started(), stage("one"), births=(work,), wake_at=AT)])
    await store.append("run", [append("run", mint(), created(), cancelled(), group=mint())])
    return store


async def tamper(owner_pool: asyncpg.Pool, sql: str, *arguments: object) -> None:
    """Change the history as only a superuser can."""
    async with owner_pool.acquire() as connection, connection.transaction():
        await connection.execute("set local session_replication_role = replica")
        status = await connection.execute(sql, *arguments)
        assert status.split()[-1] == "1", "one row was tampered with"


async def check(owner_pool: asyncpg.Pool, **chosen: object) -> Verification:
    return await verify(owner_pool, CATEGORIES, **chosen)  # type: ignore[arg-type]


def kinds(verification: Verification) -> list[tuple[str, str]]:
    return sorted((d.category, d.kind) for d in verification.differences)


@pytest.mark.parametrize("change", CHANGES)
async def test_history_is_append_only_even_for_its_owner(
    store: PostgresStore, owner_pool: asyncpg.Pool, change: str
) -> None:
    partition = await owner_pool.fetchval("select tableoid::regclass::text from workflow_history limit 1")
    sql = change.format(partition=partition.rsplit("_", 1)[1])
    with pytest.raises(asyncpg.RestrictViolationError, match="append-only"):
        await owner_pool.execute(sql)
    assert (await check(owner_pool)).ok


@pytest.mark.parametrize(
    "sql",
    [
        *(change.format(partition=0) for change in CHANGES),
        "select from workflow_history_0",
        "delete from run_heads",
        "delete from blobs",
        "update blobs set content = ''",
        "update clock_shift set shift = '1 day'",
        "insert into eras(era, reason) values (2, 'mine')",
        "create table mine()",
        "alter table workflow_history disable trigger all",
        "set session_replication_role = replica",
    ],
)
async def test_the_services_have_no_right_to(pool: asyncpg.Pool, sql: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await pool.execute(sql)


async def test_a_sound_record_verifies(store: PostgresStore, owner_pool: asyncpg.Pool, pool: asyncpg.Pool) -> None:
    assert await verify(pool, CATEGORIES) == Verification(streams=3, events=6, differences=())
    assert await check(owner_pool, tenant_group=GROUP) == Verification(streams=2, events=4, differences=())
    assert (await check(owner_pool, stream_ids=[mint()])).streams == 0


@pytest.mark.parametrize(
    ("sql", "detail"),
    [
        (
            'update workflow_history set payload = \'{"at":"2026-03-02T09:00:00Z","stage":"two"}\' where version = 3',
            "version 3",
        ),
        ("update workflow_history set metadata = '{}' where version = 3", "version 3"),
        ("update workflow_history set type = 'run.resumed' where version = 2 and tenant_group = $1", "version 2"),
        ("update workflow_history set digest = sha256('x') where version = 3", "version 3"),
        ("delete from workflow_history where version = 2 and tenant_group = $1", "version 2 is missing"),
        ("update blobs set content = 'forged'", "not the content"),
        ("delete from blobs", "missing"),
    ],
)
async def test_tampering_shows(store: PostgresStore, owner_pool: asyncpg.Pool, sql: str, detail: str) -> None:
    await tamper(owner_pool, sql, *([GROUP] if "$1" in sql else []))
    verification = await check(owner_pool)
    assert kinds(verification) == [("run", "chain")]
    assert detail in verification.differences[0].detail


async def test_a_cut_tail_and_lost_rows_show(store: PostgresStore, owner_pool: asyncpg.Pool) -> None:
    await tamper(owner_pool, "delete from workflow_history where version = 3")
    await tamper(owner_pool, "delete from workflow_history where category = 'attempt'")
    await tamper(owner_pool, "delete from run_heads where state = 'cancelled'")
    assert kinds(await check(owner_pool)) == [
        ("attempt", "missing_events"),
        ("run", "missing_events"),
        ("run", "missing_head"),
    ]


@pytest.mark.parametrize(
    "column", ["version = 2", "state = 'failed'", "stage = 'two'", "digest = ''", "cost_microdollars = 1"]
)
async def test_a_head_that_says_otherwise_shows(store: PostgresStore, owner_pool: asyncpg.Pool, column: str) -> None:
    await owner_pool.execute(f"update run_heads set {column} where version = 3")
    (difference,) = (await check(owner_pool)).differences
    assert isinstance(difference, Difference)
    assert (difference.category, difference.kind) == ("run", "head")
    assert column.split()[0] in difference.detail


async def heads(owner_pool: asyncpg.Pool) -> dict[str, list[asyncpg.Record]]:
    return {
        name: await owner_pool.fetch(f"select * from {table.table} order by stream_id") for name, table in HEADS.items()
    }


async def test_a_rebuild_makes_the_same_heads(store: PostgresStore, owner_pool: asyncpg.Pool) -> None:
    (claimed,) = await store.claim(None, limit=1, lease=LEASE)
    before = await heads(owner_pool)
    await owner_pool.execute("update run_heads set state = 'odd', stage = null, cost_microdollars = 9, digest = ''")
    await owner_pool.execute("update attempt_heads set step = 'odd'")
    assert (await rebuild(owner_pool, CATEGORIES)).streams == 3
    assert (await check(owner_pool)).ok

    after = await heads(owner_pool)
    rest = {name: [_without_wakes(row) for row in rows] for name, rows in after.items()}
    assert rest == {name: [_without_wakes(row) for row in rows] for name, rows in before.items()}
    assert after["attempt"][0]["claim"] == claimed.claim
    due = {d.stream_id for category in ("run", "attempt") for d in await store.due(category, limit=10)}
    assert due == {row["stream_id"] for rows in before.values() for row in rows if row["wake_at"] is not None}


def _without_wakes(row: asyncpg.Record) -> dict[str, object]:
    return {name: value for name, value in row.items() if name not in ("wake_at", "appended")}


async def test_a_rebuild_brings_lost_heads_back_and_owners_go_on(
    store: PostgresStore, owner_pool: asyncpg.Pool
) -> None:
    run = await owner_pool.fetchval("select stream_id from run_heads where version = 3")
    await owner_pool.execute("delete from run_heads")
    await rebuild(owner_pool, CATEGORIES, stream_ids=[run])
    assert kinds(await check(owner_pool)) == [("run", "missing_head")]
    await rebuild(owner_pool, CATEGORIES)
    assert (await check(owner_pool)).ok
    stream = (await store.load("run", {run: 0})).streams[run]
    assert (await store.append("run", [append("run", stream, stage("two"))])).appended[0].fate == "won"
    assert (await check(owner_pool)).ok


async def test_a_rebuild_trusts_no_broken_chain(store: PostgresStore, owner_pool: asyncpg.Pool) -> None:
    await tamper(owner_pool, "update workflow_history set metadata = '{}' where version = 3")
    before = await heads(owner_pool)
    run = next(row["stream_id"] for row in before["run"] if row["version"] == 3)
    rebuilt = await rebuild(owner_pool, CATEGORIES)
    assert (rebuilt.streams, rebuilt.skipped) == (2, (run,))
    assert [dict(r) for r in (await heads(owner_pool))["run"] if r["stream_id"] == run] == [
        dict(r) for r in before["run"] if r["stream_id"] == run
    ]


async def test_a_fact_of_a_newer_release_is_left_to_it(store: PostgresStore, owner_pool: asyncpg.Pool) -> None:
    run = await owner_pool.fetchval("select stream_id from run_heads where version = 3")
    await tamper(owner_pool, "update workflow_history set event_version = 9 where version = 3")
    with pytest.raises(Unavailable, match=r"run\.stage_entered version 9"):
        await store.load("run", {run: 0})


async def test_a_new_era_is_written_and_read_after_the_old_one(
    store: PostgresStore, owner_pool: asyncpg.Pool, pool: asyncpg.Pool
) -> None:
    """After a restore the old facts have the transaction ids of another cluster, here greater than any of this one."""
    async with owner_pool.acquire() as connection, connection.transaction():
        await connection.execute("set local session_replication_role = replica")
        await connection.execute("update workflow_history set xid = '123456789012'")
    await owner_pool.execute("insert into eras(era, reason) values (2, 'restored')")
    store, run = PostgresStore(pool), mint()
    result = await store.append("run", [append("run", run, created())])
    assert result.outbox is not None
    assert (result.era, result.outbox.era) == (2, 2)
    facts = [fact async for fact in tail.tail(pool, limit=2)]
    assert [fact.era for fact in facts] == [1] * 6 + [2]
    assert facts[-1].stream_id == run
    ((token, _), *_) = await store.unpublished(older_than=timedelta(0), limit=1)
    assert token.era == 1


async def test_a_delivery_that_came_back_after_it_was_recorded_is_swept(
    store: PostgresStore, owner_pool: asyncpg.Pool
) -> None:
    recorded, waiting = mint(), mint()
    received = InboundReceived(
        at=AT, source="jira", external_id="1", event="e", keys={}, payload=BLOB, body_sha256="0" * 64
    )
    await store.append("inbound", [append("inbound", recorded, received)])
    await owner_pool.executemany(
        "insert into deliveries(id, tenant_group, tenant, source, adapter, external_id, event, keys, payload_digest,"
        " payload_bytes, body_sha256) values ($1, $1, $1, 'jira', 'jira', '1', 'e', '{}', '', 0, '')",
        [(recorded,), (waiting,)],
    )
    assert await store.due_deliveries(older_than=timedelta(0), limit=10) == [waiting]
    assert await owner_pool.fetchval("select count(*) from deliveries") == 1
