"""The schema: what the migrations add up to, what the code believes of it, and who may use it."""

from pathlib import Path

import asyncpg
import pytest

import libs.postgres
from contracts.errors import Broken, Unavailable
from contracts.events import CATEGORIES
from libs.eventstore.heads import COMMON, GATE, HEADS, LOCK_ORDER, OPERATIONAL
from libs.postgres import SCHEMA_VERSION, check, execute, fetch, fetchrow, migrate, open_pool
from tests.support.postgres import Database, PostgresServer

SCHEMA = Path(libs.postgres.__file__).parent / "schema.sql"

INTROSPECTION = {
    "columns": """
      select c.relname, c.relkind, c.reloptions, a.attname, format_type(a.atttypid, a.atttypmod) as type, a.attnotnull,
             a.attidentity, pg_get_expr(d.adbin, d.adrelid) as preset, pg_get_partkeydef(c.oid) as partition_key
        from pg_class c join pg_attribute a on a.attrelid = c.oid
        left join pg_attrdef d on (d.adrelid, d.adnum) = (c.oid, a.attnum)
       where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0
       order by 1, a.attnum""",
    "indexes": "select indexname, indexdef from pg_indexes where schemaname = 'public' order by 1",
    "constraints": """
      select conrelid::regclass::text as relation, conname, pg_get_constraintdef(oid) as definition from pg_constraint
       where connamespace = 'public'::regnamespace order by 1, 2""",
    "functions": """
      select proname, pg_get_functiondef(oid) as definition from pg_proc
       where pronamespace = 'public'::regnamespace order by 1""",
    "triggers": "select pg_get_triggerdef(oid) as definition from pg_trigger where not tgisinternal order by 1",
    "rights": """
      select c.relname, g.privilege_type from pg_class c, aclexplode(c.relacl) g
       where c.relnamespace = 'public'::regnamespace and g.grantee = 'minutebook_app'::regrole order by 1, 2""",
}


async def test_the_migrations_add_up_to_the_schema_file(database: Database, postgres_server: PostgresServer) -> None:
    other = await postgres_server.create()
    await postgres_server.run(SCHEMA.read_text(), other)
    migrated = await asyncpg.connect(database.owner_dsn)
    written = await asyncpg.connect(postgres_server.dsn(other))
    try:
        for name, sql in INTROSPECTION.items():
            found = [tuple(row) for row in await migrated.fetch(sql)]
            assert found, f"no {name}"
            assert found == [tuple(row) for row in await written.fetch(sql)], name
    finally:
        await migrated.close()
        await written.close()
        await postgres_server.run(f"drop database {other}")


@pytest.mark.parametrize("category", sorted(HEADS))
async def test_the_declared_heads_are_the_tables(owner_pool: asyncpg.Pool, category: str) -> None:
    heads = HEADS[category]
    rows = await owner_pool.fetch(
        "select attname, format_type(atttypid, null) as type, attnotnull from pg_attribute"
        " where attrelid = $1::text::regclass and attnum > 0 and not attisdropped",
        heads.table,
    )
    names = {"int": "integer", "timestamptz": "timestamp with time zone"}
    operational = {**OPERATIONAL, **GATE} if heads.claimable else {}
    derived = {row["attname"]: row["type"] for row in rows if row["attname"] not in (*COMMON, *operational)}
    assert {row["attname"] for row in rows} == {*COMMON, *heads.columns, *operational}
    assert derived == {name: names.get(kind, kind) for name, kind in heads.columns.items()}
    assert {row["attname"] for row in rows if not row["attnotnull"]} == {"wake_at", *heads.nullable, *operational}


def test_every_category_has_its_head_and_its_place_in_the_lock_order() -> None:
    assert set(HEADS) == set(CATEGORIES) == set(LOCK_ORDER)


async def test_no_index_contains_a_state_unless_partial(owner_pool: asyncpg.Pool) -> None:
    rows = await owner_pool.fetch(
        "select indexdef from pg_indexes where schemaname = 'public' and indexdef ~ '\\mstate\\M'"
    )
    assert rows
    assert all(" WHERE " in row["indexdef"] for row in rows)
    assert not any("state" in row["indexdef"].split(" WHERE ")[0] for row in rows)


async def test_migrating_again_changes_nothing(database: Database, owner_pool: asyncpg.Pool) -> None:
    assert await migrate(database.owner_dsn) == 0
    await check(owner_pool)


async def test_a_database_that_was_never_migrated_is_refused(postgres_server: PostgresServer) -> None:
    name = await postgres_server.create()
    pool = await open_pool(postgres_server.dsn(name), application_name="tests")
    try:
        with pytest.raises(Unavailable, match=f"version 0 and this release needs {SCHEMA_VERSION}"):
            await check(pool)
        assert await migrate(postgres_server.dsn(name)) == SCHEMA_VERSION
        await check(pool)
    finally:
        await pool.close()
        await postgres_server.run(f"drop database {name}")


async def test_a_schema_that_only_expands_is_fine_and_a_newer_or_another_products_is_not(
    database: Database, pool: asyncpg.Pool, owner_pool: asyncpg.Pool
) -> None:
    newer = "insert into schema_migrations(version, name) values ($1, $2)"
    await owner_pool.execute(newer, SCHEMA_VERSION + 1, "expand_with_a_column")
    await check(pool)
    await owner_pool.execute(newer, SCHEMA_VERSION + 2, "drop_a_column")
    with pytest.raises(Unavailable, match=f"at version {SCHEMA_VERSION + 2} and .* understands {SCHEMA_VERSION}"):
        await check(pool)
    await owner_pool.execute("update schema_migrations set name = 'other' where version = 1")
    with pytest.raises(Broken, match="'other'"):
        await check(pool)
    with pytest.raises(Broken, match="'other'"):
        await migrate(database.owner_dsn)


async def test_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"postgres\.unreachable"):
        await open_pool(f"postgresql://minutebook_app@/nothing?host={tmp_path}", application_name="tests")


async def test_a_database_that_is_not_there(postgres_server: PostgresServer) -> None:
    with pytest.raises(Unavailable):
        await open_pool(postgres_server.dsn("absent"), application_name="tests")


async def test_errors_do_not_quote_values(pool: asyncpg.Pool) -> None:
    with pytest.raises(Broken) as refused:
        await fetch(pool, "select $1::text::int", "s3cret")
    with pytest.raises(Broken) as unfit:
        await fetch(pool, "select $1::int", "s3cret")
    for raised in (refused, unfit):
        assert "s3cret" not in str(raised.value)
        assert raised.value.__cause__ is None
    with pytest.raises(Broken, match="nowhere"):
        await execute(pool, "select from nowhere")


async def test_a_connection_that_was_cut_is_unavailable_and_then_replaced(
    pool: asyncpg.Pool, owner_pool: asyncpg.Pool
) -> None:
    with pytest.raises(Unavailable):
        await fetch(pool, "select pg_terminate_backend(pg_backend_pid()), pg_sleep(5)")
    assert (
        await fetchrow(pool, "select current_user::text as me, current_setting('application_name') as app") is not None
    )


async def test_the_clock_is_one_and_can_be_shifted(pool: asyncpg.Pool, owner_pool: asyncpg.Pool) -> None:
    await owner_pool.execute("update clock_shift set shift = interval '3 days'")
    row = await fetchrow(pool, "select minutebook_now() - clock_timestamp() > interval '2 days 23:59' as shifted")
    assert row is not None
    assert row["shifted"]
