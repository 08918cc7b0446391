"""Seals on a real PostgreSQL: what they cover, what they cost, and that nobody seals twice or over what is broken."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs

from contracts.errors import Broken, Unavailable
from libs.audit.merkle import Tree
from libs.audit.seals import Sealer, leaves_of, seals_of
from libs.audit.signing import Keyring, SigningKey, key_id, public_keys, signing_key
from libs.config import Secrets
from libs.eventstore.postgres import PostgresStore
from libs.ids import mint
from services.scheduler.seals import Seals
from tests.conformance.test_store_samples import append, cancelled, created, stage, started
from tests.support.postgres import Database

SEED = base64.b64encode(b"the seed of a key, for the tests").decode()
PEM = """-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIHRoZSBzZWVkIG9mIGEga2V5LCBmb3IgdGhlIHRlc3Rz
-----END PRIVATE KEY-----
"""


def secrets(text: str | None = SEED) -> Secrets:
    return Secrets(overrides={} if text is None else {"seal_signing_key": text})


@pytest.fixture
def key() -> SigningKey:
    found = signing_key(secrets())
    assert found is not None
    return found


@pytest.fixture
def store(pool: asyncpg.Pool) -> PostgresStore:
    return PostgresStore(pool)


async def grow(store: PostgresStore, *runs: UUID) -> None:
    """Write two facts into each of these new runs."""
    await store.append("run", [append("run", run, created(), started()) for run in sorted(runs)])


async def go_on(store: PostgresStore, run: UUID) -> None:
    stream = (await store.load("run", {run: 0})).streams[run]
    await store.append("run", [append("run", stream, stage("one"))])


@asynccontextmanager
async def unfinished(database: Database) -> AsyncIterator[None]:
    connection = await asyncpg.connect(database.owner_dsn)
    try:
        async with connection.transaction():
            await connection.execute("select pg_current_xact_id()")
            yield
    finally:
        await connection.close()


async def test_a_seal_has_the_tip_of_every_stream_that_changed(
    store: PostgresStore, pool: asyncpg.Pool, key: SigningKey
) -> None:
    sealer, (one, two) = Sealer(pool), sorted((mint(), mint()))
    assert await sealer.seal(key) is None, "there is nothing to seal"
    await grow(store, one, two)
    first = await sealer.seal(key)
    assert await sealer.seal(key) is None, "nothing was written since"
    await go_on(store, two)
    second = await sealer.seal(key)
    assert first is not None
    assert second is not None
    assert await seals_of(pool) == [first, second]

    leaves = [leaf async for leaf in leaves_of(pool)]
    assert [(leaf.number, leaf.stream_id, leaf.version) for leaf in leaves] == [(0, one, 2), (1, two, 2), (2, two, 3)]
    tips = (await store.load("run", {one: 0, two: 0})).streams
    assert [leaves[0].digest, leaves[2].digest] == [tips[one].digest, tips[two].digest]
    tree = Tree(leaf.hash for leaf in leaves)
    assert [(seal.size, seal.root) for seal in (first, second)] == [(2, tree.root(2)), (3, tree.root(3))]
    ring = Keyring.of(secrets())
    assert all(ring.verify(seal.key_id, seal.signature, seal.statement()) for seal in (first, second))


async def test_what_a_transaction_may_still_write_below_is_left_to_the_next_seal(
    database: Database, store: PostgresStore, pool: asyncpg.Pool, key: SigningKey
) -> None:
    sealer = Sealer(pool)
    async with unfinished(database):
        await grow(store, mint())
        assert await sealer.seal(key) is None
    assert (await sealer.seal(key)) is not None


async def test_much_is_sealed_in_pieces_and_by_another_sealer_to_the_same_root(
    store: PostgresStore, pool: asyncpg.Pool, key: SigningKey
) -> None:
    for _ in range(5):
        await grow(store, mint(), mint())
    small = Sealer(pool, facts_max=6)
    sizes = []
    while (seal := await small.seal(key)) is not None:
        sizes.append(seal.size)
        if len(sizes) == 2:
            small = Sealer(pool, facts_max=6)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == 10
    assert len(sizes) > 2
    assert (await seals_of(pool))[-1].root == Tree([leaf.hash async for leaf in leaves_of(pool)]).root(10)


async def test_two_who_seal_at_once_make_one_seal(store: PostgresStore, pool: asyncpg.Pool, key: SigningKey) -> None:
    sealers = [Sealer(pool), Sealer(pool)]
    for number in range(1, 6):
        await grow(store, mint())
        made = await asyncio.gather(*(sealer.seal(key) for sealer in sealers))
        assert sum(seal is not None for seal in made) >= 1
        seals = await seals_of(pool)
        assert [seal.number for seal in seals] == list(range(1, number + 1))
        assert seals[-1].size == number


async def test_nothing_is_sealed_over_leaves_that_were_changed(
    store: PostgresStore, pool: asyncpg.Pool, owner_pool: asyncpg.Pool, key: SigningKey
) -> None:
    await grow(store, mint())
    assert await Sealer(pool).seal(key) is not None
    async with owner_pool.acquire() as connection, connection.transaction():
        await connection.execute("set local session_replication_role = replica")
        await connection.execute("update seal_leaves set version = 1")
    await grow(store, mint())
    with pytest.raises(Broken, match="not those"):
        await Sealer(pool).seal(key)
    with capture_logs() as logs:
        duty = Seals(pool, secrets())
        await duty.make()
        await duty.make()
    assert [(log["event"], log["code"]) for log in logs] == [("the history cannot be sealed", "seals.broken")]


@pytest.mark.parametrize("sql", ["update seals set size = 0", "delete from seal_leaves", "truncate seals"])
async def test_seals_are_only_ever_added(
    store: PostgresStore, pool: asyncpg.Pool, owner_pool: asyncpg.Pool, key: SigningKey, sql: str
) -> None:
    await grow(store, mint())
    await Sealer(pool).seal(key)
    with pytest.raises(asyncpg.RestrictViolationError, match="append-only"):
        await owner_pool.execute(sql)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await pool.execute(sql)


async def test_without_a_key_nothing_is_sealed_and_that_is_said_once(store: PostgresStore, pool: asyncpg.Pool) -> None:
    await grow(store, mint())
    with capture_logs() as logs:
        duty = Seals(pool, secrets(None))
        await duty.make()
        await duty.make()
    assert [log["event"] for log in logs] == ["no seals are made, there is no key to sign them with"]
    assert await seals_of(pool) == []
    with capture_logs() as logs:
        await Seals(pool, secrets("no key")).make()
    assert [log["code"] for log in logs] == ["seals.key_malformed"]


def test_a_key_is_pem_or_base64_of_its_seed(key: SigningKey) -> None:
    found = signing_key(secrets(PEM))
    assert found is not None
    assert (found.id, found.public) == (key.id, key.public)
    assert key.id == key_id(key.public)
    assert key.public.hex() not in repr(key)
    assert public_keys(f"{key.public.hex()}\n{base64.b64encode(key.public).decode()}") == [key.public] * 2
    for text in ("abc", SEED[:-4], PEM.replace("BCIEI", "BCIEJ")):
        with pytest.raises(Unavailable, match="seal_signing_key"):
            signing_key(secrets(text))


def test_a_keyring_knows_what_it_was_given(key: SigningKey) -> None:
    ring = Keyring([key.public])
    assert ring.verify(key.id, key.sign(b"this"), b"this") is True
    assert ring.verify(key.id, key.sign(b"this"), b"that") is False
    assert ring.verify("0" * 16, key.sign(b"this"), b"this") is None


@pytest.mark.force
async def test_a_seal_costs_what_changed(pool: asyncpg.Pool, store: PostgresStore, key: SigningKey) -> None:
    """100,000 streams, sealed; then one that changes. `-s` prints the figures."""
    sealer = Sealer(pool)
    for _ in range(500):
        await store.append("run", [append("run", uuid4(), created(), cancelled()) for _ in range(200)])
    began = time.perf_counter()
    while await sealer.seal(key) is not None:
        pass
    all_seconds = time.perf_counter() - began
    await grow(store, mint())
    began = time.perf_counter()
    assert await sealer.seal(key) is not None
    one_seconds = time.perf_counter() - began
    await grow(store, mint())
    began = time.perf_counter()
    assert await Sealer(pool).seal(key) is not None
    anew_seconds = time.perf_counter() - began
    print(f"all {all_seconds:.2f} s, one more {one_seconds * 1000:.1f} ms, by a new sealer {anew_seconds:.2f} s")  # noqa: T201
    assert one_seconds < all_seconds / 20
