"""A reader of the whole history follows transactions, not positions: those are given before anybody commits."""

from typing import Final
from uuid import uuid4

import asyncpg

from libs.domain import run
from libs.eventstore import tail
from tests.guards.test_clock import created_run
from tests.support.postgres import Database
from tests.support.record import open_record

COPY: Final = """
insert into workflow_history(era, stream_id, version, category, type, event_version, payload, metadata, tenant_group,
                             tenant, digest)
select era, $1, 1, category, type, event_version, payload, metadata, tenant_group, tenant, digest
from workflow_history where type = 'run.created' limit 1
"""


async def test_a_fact_of_a_lower_position_that_commits_later_is_read(database: Database) -> None:
    """The older transaction writes second and commits first; what the younger one wrote has the lower position."""
    older, younger = uuid4(), uuid4()
    async with open_record(database) as record:
        await record.plant(run.CATEGORY, uuid4(), created_run(await record.store.now()))
        first = await asyncpg.connect(database.owner_dsn)
        second = await asyncpg.connect(database.owner_dsn)
        try:
            await first.execute("begin; select pg_current_xact_id()")
            await second.execute("begin")
            await second.execute(COPY, younger)
            await first.execute(COPY, older)
            await first.execute("commit")
            seen = [recorded async for recorded in tail.tail(record.pool)]
            assert seen[-1].stream_id == older
            await second.execute("commit")
        finally:
            await first.close()
            await second.close()
        rest = [recorded async for recorded in tail.tail(record.pool, tail.after(seen[-1]))]
    assert [recorded.stream_id for recorded in rest] == [younger]
    assert rest[0].position < seen[-1].position
