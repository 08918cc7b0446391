"""Personal texts in the record: sealed where they lie, read by who holds the key, erased with it, in every store."""

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest

from contracts.base import Actor, Metadata
from contracts.errors import Unavailable
from contracts.events.run import RunCancelled, UserRef
from contracts.personal import ERASED, ERASED_EMAIL
from libs.config import Secrets
from libs.eventstore import tail
from libs.eventstore.keyring import MARK, token_mark
from libs.eventstore.mapper import PAYLOAD_BYTES_MAX, Mapper
from libs.eventstore.people import PostgresPeople
from libs.eventstore.port import Append, Recorded
from libs.eventstore.postgres import PostgresStore
from libs.eventstore.rebuild import rebuild
from libs.eventstore.verify import verify
from libs.ids import mint
from libs.sealing import Sealing, new_key
from tests.conformance.test_store_samples import AT, CATEGORIES, GROUP, TENANT, append, created, run_columns
from tests.support.postgres import Database, World

DANA = UserRef(id=uuid4(), email="dana@example.com")
BY_DANA = Actor(kind="user", id=DANA.id, name=DANA.email)
BY_KEY = Actor(kind="api_key", id=uuid4(), name="ci")
AT_ONCE = timedelta(0)


def of_dana(stream_id: UUID, *, context: str = "ABC-1", by: Actor = BY_DANA) -> Append:
    """A run that Dana owns, begun and cancelled by her."""
    begun = created(initiated_by=DANA, context={"ticket": context})
    return Append(
        stream_id=stream_id,
        version=0,
        digest=b"",
        events=(begun, RunCancelled(at=AT, reason="not needed", by=by)),
        metadata=Metadata(
            tenant_group=GROUP, tenant=TENANT, actor=by, correlation=stream_id, causation=UUID(int=stream_id.int + 1)
        ),
        state="cancelled",
        columns=run_columns(begun) | {"finished_at": AT},
        wake_at=None,
    )


async def facts(world: World, stream_id: UUID) -> tuple[Recorded, ...]:
    return (await world.store.events("run", [stream_id], tenant_group=GROUP))[stream_id]


def named(recorded: tuple[Recorded, ...]) -> list[str]:
    """Everything that facts of `of_dana` say of a person."""
    first, second = recorded
    assert isinstance(second.event, RunCancelled)
    assert second.event.by is not None
    owner: UserRef = first.event.initiated_by  # type: ignore[attr-defined]  # a run's birth
    return [owner.email, second.event.by.name, first.metadata.actor.name, second.metadata.actor.name]


async def test_who_reads_sees_the_person_until_they_are_erased(world: World) -> None:
    stream_id, other = mint(), mint()
    await world.store.append("run", [of_dana(stream_id), append("run", other, created())])
    before = await facts(world, stream_id)
    assert named(before) == [DANA.email] * 4

    erasures = world.store.erasures
    await world.store.mapper.people.destroy(DANA.id, GROUP)
    after = await facts(world, stream_id)
    assert named(after) == [ERASED_EMAIL, ERASED, ERASED, ERASED]
    assert [fact.digest for fact in after] == [fact.digest for fact in before]
    assert [fact.metadata.actor.id for fact in after] == [DANA.id] * 2, "ids are pseudonyms and stay"
    assert world.store.erasures > erasures
    loaded = (await world.store.load("run", {stream_id: 0, other: 0})).streams
    assert named(loaded[stream_id].events) == [ERASED_EMAIL, ERASED, ERASED, ERASED]
    assert loaded[other].events[0].event.initiated_by.email == "dev@example.com"  # type: ignore[attr-defined]


async def test_of_who_is_erased_nothing_is_written_any_more(world: World) -> None:
    """Also when they were never named before."""
    stream_id = mint()
    await world.store.mapper.people.destroy(DANA.id, GROUP)
    await world.store.append("run", [of_dana(stream_id)])
    assert named(await facts(world, stream_id)) == [ERASED_EMAIL, ERASED, ERASED, ERASED]


async def test_keys_and_services_are_nobody(world: World) -> None:
    stream_id = mint()
    await world.store.append("run", [of_dana(stream_id, by=BY_KEY)])
    await world.store.mapper.people.destroy(BY_KEY.id or uuid4(), GROUP)
    assert named(await facts(world, stream_id)) == [DANA.email, "ci", "ci", "ci"]


async def test_the_same_facts_are_the_same_bytes(world: World) -> None:
    first, again = mint(), mint()
    await world.store.append("run", [of_dana(first)])
    await world.store.append("run", [of_dana(again)])
    mapper = world.store.mapper
    [one, two] = [await facts(world, each) for each in (first, again)]
    assert [mapper.to_stored(fact.event, first, 1).state for fact in one] == [
        mapper.to_stored(fact.event, first, 1).state for fact in two
    ]


# On PostgreSQL


@pytest.fixture
def sealing() -> Sealing:
    return Sealing(Secrets(overrides={"sealing_key": new_key()}))


def store_on(pool: asyncpg.Pool, sealing: Sealing | None, *, forgotten_within: timedelta = AT_ONCE) -> PostgresStore:
    people = PostgresPeople(pool, sealing, forgotten_within=forgotten_within)
    return PostgresStore(pool, mapper=Mapper(people=people))


async def stored(pool: asyncpg.Pool) -> str:
    rows = await pool.fetch(
        "select payload::text || metadata::text || coalesce(encode(b.content, 'escape'), '') as text"
        " from workflow_history left join blobs b using (tenant_group)"
    )
    return "\n".join(row["text"] for row in rows)


@pytest.mark.parametrize("context", ["ABC-1", "x" * PAYLOAD_BYTES_MAX])
async def test_what_lies_in_the_database_names_nobody_and_proves_itself(
    pool: asyncpg.Pool, owner_pool: asyncpg.Pool, sealing: Sealing, context: str
) -> None:
    store, stream_id = store_on(pool, sealing), mint()
    await store.append("run", [of_dana(stream_id, context=context)])
    text = await stored(owner_pool)
    assert DANA.email not in text
    assert text.count(token_mark(DANA.id)) >= 4
    reading = Mapper(people=PostgresPeople(pool, sealing))
    assert (await verify(owner_pool, CATEGORIES, mapper=reading)).ok
    [begun, _] = [fact async for fact in tail.tail(pool, mapper=reading)]
    assert begun.event.initiated_by == DANA  # type: ignore[attr-defined]

    await store.mapper.people.destroy(DANA.id, GROUP)
    assert (await rebuild(owner_pool, CATEGORIES, mapper=store.mapper)).streams == 1
    assert (await verify(owner_pool, CATEGORIES, mapper=store.mapper)).ok
    assert await stored(owner_pool) == text, "no byte of the record was touched"


async def test_another_process_forgets_within_a_bounded_time(pool: asyncpg.Pool, sealing: Sealing) -> None:
    ours, theirs = store_on(pool, sealing), store_on(pool, sealing)
    patient = store_on(pool, sealing, forgotten_within=timedelta(hours=1))
    world, other, slow = World(ours), World(theirs), World(patient)
    stream_id, later = mint(), mint()
    await ours.append("run", [of_dana(stream_id)])
    assert named(await facts(other, stream_id)) == named(await facts(slow, stream_id)) == [DANA.email] * 4

    await ours.mapper.people.destroy(DANA.id, GROUP)
    assert named(await facts(world, stream_id)) == [ERASED_EMAIL, ERASED, ERASED, ERASED]
    assert named(await facts(other, stream_id)) == [ERASED_EMAIL, ERASED, ERASED, ERASED]
    assert named(await facts(slow, stream_id)) == [DANA.email] * 4, "as long as it was given"
    await patient.append("run", [of_dana(later)])  # sealed under the key that is gone
    assert named(await facts(other, later)) == [ERASED_EMAIL, ERASED, ERASED, ERASED]


async def test_who_first_names_a_person_makes_the_key_for_all(
    database: Database, pool: asyncpg.Pool, sealing: Sealing
) -> None:
    stores = [store_on(pool, sealing) for _ in range(8)]
    stream_ids = [mint() for _ in stores]
    await asyncio.gather(*(s.append("run", [of_dana(i)]) for s, i in zip(stores, stream_ids, strict=True)))
    assert await pool.fetchval("select count(*) from subject_keys") == 1
    for stream_id in stream_ids:
        assert named(await facts(World(stores[0]), stream_id)) == [DANA.email] * 4


async def test_keys_lie_sealed_and_are_read_with_the_key_that_sealed_them(pool: asyncpg.Pool) -> None:
    old, new = new_key(), new_key()
    stream_id = mint()
    await store_on(pool, Sealing(Secrets(overrides={"sealing_key": old}))).append("run", [of_dana(stream_id)])
    with pytest.raises(Unavailable, match=r"sealing\.key_missing"):
        await facts(World(store_on(pool, None)), stream_id)
    with pytest.raises(Unavailable, match=r"sealing\.key_missing"):
        await facts(World(store_on(pool, Sealing(Secrets(overrides={"sealing_key": new})))), stream_id)

    both = Sealing(Secrets(overrides={"sealing_key": new, "sealing_key_previous": old}))
    assert named(await facts(World(store_on(pool, both)), stream_id)) == [DANA.email] * 4


async def test_a_rotation_seals_every_key_anew_and_brings_none_back(pool: asyncpg.Pool) -> None:
    old, new = new_key(), new_key()
    before = store_on(pool, Sealing(Secrets(overrides={"sealing_key": old})))
    stream_id, gone = mint(), uuid4()
    await before.append("run", [of_dana(stream_id)])
    await before.mapper.people.destroy(gone, GROUP)
    both = PostgresPeople(pool, Sealing(Secrets(overrides={"sealing_key": new, "sealing_key_previous": old})))
    assert (await both.reseal(), await both.reseal()) == (1, 0)
    alone = store_on(pool, Sealing(Secrets(overrides={"sealing_key": new})))
    assert named(await facts(World(alone), stream_id)) == [DANA.email] * 4
    assert not await pool.fetchval("select sealed from subject_keys where subject = $1", gone)


async def test_an_audit_that_only_reads_holds_while_a_key_is_rotated(pool: asyncpg.Pool) -> None:
    old, new = new_key(), new_key()
    await store_on(pool, Sealing(Secrets(overrides={"sealing_key": old}))).append("run", [of_dana(mint())])
    both = Sealing(Secrets(overrides={"sealing_key": new, "sealing_key_previous": old}))
    mapper = store_on(pool, both).mapper
    assert (await verify(pool, CATEGORIES, mapper=mapper)).ok


async def test_a_person_can_be_read_over_the_only_connection_of_a_pool(database: Database, pool: asyncpg.Pool) -> None:
    await PostgresStore(pool).append("run", [of_dana(mint())])
    narrow = await asyncpg.create_pool(database.owner_dsn, min_size=1, max_size=1)
    try:
        async with asyncio.timeout(20):
            assert (await verify(narrow, CATEGORIES)).ok
    finally:
        await narrow.close()


async def test_what_looks_like_a_token_and_is_none_is_read_as_it_is(pool: asyncpg.Pool) -> None:
    stream_id, forged = mint(), f"{MARK}{uuid4().hex}:{'A' * 40}"
    await PostgresStore(pool).append("run", [of_dana(stream_id, by=BY_KEY.model_copy(update={"name": forged}))])
    assert named(await facts(World(PostgresStore(pool)), stream_id)) == [DANA.email, forged, forged, forged]
