"""A person erased: unreadable everywhere, the record whole, what stands in clear told; also when killed on the way."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest

from contracts.errors import Rejected
from contracts.personal import ERASED, ERASED_EMAIL
from libs.domain import identity
from libs.domain.categories import CATEGORIES
from libs.eventstore.keyring import token_mark
from libs.eventstore.verify import verify
from libs.faultpoints import FAULTPOINTS, VARIABLE
from minutebook.cli.session import Exit
from services.host.erasing import Erasure, erase, find, look
from tests.support.api import World, world
from tests.support.host import SEALED
from tests.support.postgres import Database
from tests.support.record import open_record
from tests.support.stack import command

COMMENT: Final = "Dana ought to have asked me first"
AT_ONCE: Final = timedelta(0)

_ERASE: Final = """
import asyncio, sys
from datetime import timedelta

from services.host.erasing import erase, find
from tests.support.postgres import Database
from tests.support.record import ListeningBus, open_record


async def main(app_dsn, owner_dsn, user):
    async with open_record(Database("", owner_dsn, app_dsn)) as record:
        tools = await record.tools(ListeningBus())
        found = await find(tools, user, group="example")
        await erase(tools, tools.pool, found, reason="asked", progress=print, forgotten_within=timedelta(0))
        await tools.close()


asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
async def api(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        yield made


async def decided(api: World) -> tuple[UUID, UUID]:
    """A run that dana started, and whose decision priya answered with a comment: (run, decision)."""
    run_id, decision_id = await api.waiting(by="dana", key="a ticket of priya@example.com")
    body = {"comment": COMMENT}
    answered = await api.call("POST", f"/decisions/{decision_id}/request_changes", by="priya", json=body)
    assert answered.status_code == 200, answered.text
    await api.plan(run_id)
    return run_id, decision_id


async def end(api: World, name: str) -> None:
    await api.identity.deactivate_user(api.place, api.users[name])


async def erased(api: World, whom: str, *, group: str | None = "example") -> Erasure:
    found = await find(api.tools, whom, group=group)
    return await erase(
        api.tools,
        api.tools.require_pool(),
        found,
        reason="asked",
        progress=lambda _: None,
        forgotten_within=AT_ONCE,
    )


async def whole(pool: asyncpg.Pool, api: World) -> bool:
    verification = await verify(pool, CATEGORIES, mapper=api.store.mapper)
    return verification.ok


async def everything(pool: asyncpg.Pool) -> list[tuple[Any, ...]]:
    """The stored bytes of the history, and the blobs."""
    facts = await pool.fetch("select position, payload::text, metadata::text, digest from workflow_history order by 1")
    return [tuple(row) for row in facts]


async def shown(api: World, run_id: UUID, decision_id: UUID) -> str:
    """All that the api shows of a run."""
    paths = (f"/runs/{run_id}", f"/runs/{run_id}/history", f"/decisions/{decision_id}", "/runs")
    return "\n".join([json.dumps(await api.get(path)) for path in paths])


async def test_an_erased_person_is_unreadable_everywhere_and_the_record_is_whole(
    api: World, owner_pool: asyncpg.Pool
) -> None:
    run_id, decision_id = await decided(api)
    before = await shown(api, run_id, decision_id)
    assert "dana@example.com" in before
    assert COMMENT in before
    assert await whole(owner_pool, api)
    bytes_before = await everything(owner_pool)
    assert all("dana@example.com" not in f"{payload}{metadata}" for _, payload, metadata, _ in bytes_before)
    await end(api, "priya")
    await end(api, "dana")

    priya = await erased(api, "priya@example.com")
    dana = await erased(api, str(api.users["dana"]), group=None)
    after = await shown(api, run_id, decision_id)
    assert "dana@example.com" not in after
    assert COMMENT not in after
    assert ERASED in after
    assert ERASED_EMAIL in after
    assert str(api.users["dana"]) in after, "ids are pseudonyms and stay"
    assert await whole(owner_pool, api)
    now = await everything(owner_pool)
    assert now[: len(bytes_before)] == bytes_before, "no stored byte was touched"

    assert {"identity", "run", "decision"} <= set(priya.traces.sealed) | set(dana.traces.sealed)
    assert priya.heads_rebuilt == 2, "the person's own row and their token's"
    names = await owner_pool.fetch(
        "select name from identity_heads where stream_id = $1 or owner = $1", api.users["dana"]
    )
    assert sorted(row["name"] for row in names) == [ERASED, ERASED_EMAIL]
    assert not await owner_pool.fetchval("select sealed from subject_keys where subject = $1", api.users["dana"])


async def test_where_the_person_stands_in_clear_is_told_with_the_runs(api: World) -> None:
    run_id, _ = await decided(api)
    await end(api, "priya")
    erasure = await erased(api, "priya@example.com")
    clear = {place.table: place for place in erasure.traces.clear}
    assert clear["workflow_history"].runs == (run_id,), "the context names her"
    assert clear["run_heads"].runs == (run_id,), "so does what runs are searched by"
    assert clear["blobs"].runs == (run_id,), "and what the next attempt was asked"
    assert "identity_heads" not in clear
    assert set(erasure.as_json()["in_clear"][0]) == {"table", "rows", "runs"}


async def test_looking_first_changes_nothing(api: World, owner_pool: asyncpg.Pool) -> None:
    await decided(api)
    before = await everything(owner_pool)
    found = await find(api.tools, "priya@example.com", group="example")
    looked = await look(api.tools.require_pool(), found, lambda _: None)
    assert (looked.done, looked.traces.sealed["decision"] >= 2) == (False, True)
    assert "identity_heads" in {place.table for place in looked.traces.clear}
    assert await everything(owner_pool) == before


async def test_who_may_still_act_is_not_erased(api: World, owner_pool: asyncpg.Pool) -> None:
    before = await everything(owner_pool)
    with pytest.raises(Rejected) as refused:
        await erased(api, "dana@example.com")
    assert (refused.value.code, refused.value.status) == ("identity.active", 409)
    assert "minutebook users deactivate dana@example.com" in refused.value.message
    assert await everything(owner_pool) == before
    assert (await api.call("GET", "/runs", by="dana")).status_code == 200


@pytest.mark.parametrize(
    ("whom", "group"),
    [("nobody@example.com", None), ("dana@example.com", "elsewhere"), (str(UUID(int=1)), None)],
)
async def test_who_is_not_there_is_not_found(api: World, whom: str, group: str | None) -> None:
    with pytest.raises(Rejected, match=r"identity\.not_found"):
        await find(api.tools, whom, group=group)


async def test_an_erased_address_lets_nobody_in_and_is_not_given_again(api: World, owner_pool: asyncpg.Pool) -> None:
    await end(api, "dana")
    await erased(api, "DANA@example.com")
    assert (await api.call("GET", "/runs", by="dana")).status_code == 401
    with pytest.raises(Rejected) as taken:
        await api.identity.register_user(api.place, "dana@example.com", roles=["developer"])
    assert taken.value.code == "identity.taken"
    assert "dana@example.com" not in taken.value.message
    assert all("dana@" not in f"{payload}{metadata}" for _, payload, metadata, _ in await everything(owner_pool))


async def test_erasing_again_changes_nothing_more(api: World, owner_pool: asyncpg.Pool) -> None:
    await decided(api)
    await end(api, "priya")
    first = await erased(api, "priya@example.com")
    before = await everything(owner_pool)
    again = await erased(api, "priya@example.com")
    assert await everything(owner_pool) == before
    assert again.traces.sealed == first.traces.sealed
    assert again.traces.clear == first.traces.clear, "the address that was given is looked for again"


async def test_an_erased_owner_s_run_goes_on_without_a_name(api: World, owner_pool: asyncpg.Pool) -> None:
    """What owners had in memory is forgotten, and what they write names nobody."""
    run_id, decision_id = await api.waiting(by="dana")
    await end(api, "dana")
    await erased(api, "dana@example.com")
    approved = await api.call("POST", f"/decisions/{decision_id}/approve", by="priya", json={})
    assert approved.status_code == 200, approved.text
    await api.plan(run_id)
    text = await shown(api, run_id, decision_id)
    assert "dana@example.com" not in text
    assert "priya@example.com" in text
    assert all("dana@" not in f"{payload}{metadata}" for _, payload, metadata, _ in await everything(owner_pool))
    assert await whole(owner_pool, api)


@pytest.mark.parametrize("place", [name for name in FAULTPOINTS if name.startswith("erase.")])
async def test_a_kill_anywhere_is_made_good_by_running_it_again(
    api: World, owner_pool: asyncpg.Pool, database: Database, place: str
) -> None:
    await decided(api)
    await end(api, "priya")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _ERASE,
        database.app_dsn,
        database.owner_dsn,
        "priya@example.com",
        cwd=Path(__file__).parents[2],
        env={**os.environ, VARIABLE: place},
        stdout=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(60):
        assert await process.wait() == -signal.SIGKILL
    async with open_record(database) as record:  # a store that holds no key yet
        tools = await record.tools(api.bus)
        found = await find(tools, "priya@example.com", group="example")
        assert found.state.erased
        erasure = await erase(
            tools, record.pool, found, reason="again", progress=lambda _: None, forgotten_within=AT_ONCE
        )
        await tools.close()
        assert {place.table for place in erasure.traces.clear} == {"workflow_history", "run_heads", "blobs"}
        assert (await verify(owner_pool, CATEGORIES, mapper=record.store.mapper)).ok
        state = await record.state(identity.CATEGORY, api.users["priya"])
    assert (state.handle, state.name, state.erased) == (ERASED_EMAIL, ERASED, True)
    recorded = await owner_pool.fetchval("select count(*) from workflow_history where type = 'identity.user_erased'")
    assert recorded == 1


async def test_the_command_says_what_it_did(
    api: World, owner_pool: asyncpg.Pool, database: Database, nats_url: str, tmp_path: Path
) -> None:
    env = {"MINUTEBOOK_POSTGRES_DSN": database.app_dsn, "MINUTEBOOK_NATS_URL": nats_url, **SEALED}
    run_id, _ = await decided(api)
    arguments = ("audit", "erase", "priya@example.com", "--group", "example", "--reason", "asked")
    refused = command(*arguments, "--yes", cwd=tmp_path, **env)
    assert refused.returncode == Exit.REFUSED
    assert "minutebook users deactivate priya@example.com" in refused.stderr
    await end(api, "priya")
    nobody = command(*arguments, cwd=tmp_path, **env)
    assert nobody.returncode == Exit.USAGE, nobody.stderr
    done = command(*arguments, "--yes", cwd=tmp_path, **env)
    assert done.returncode == 0, done.stderr
    assert "sealed texts, unreadable now" in done.stdout
    assert f"in clear: workflow_history, 1 rows; runs {run_id}" in done.stdout
    assert "waiting until no service holds it any more" in done.stderr
    dry = command(*arguments, "--dry-run", "--json", cwd=tmp_path, **env)
    report = json.loads(dry.stdout)
    assert (report["erased"], report["user_id"]) == (False, str(api.users["priya"]))
    mark = token_mark(api.users["priya"])
    assert report["sealed_texts"]["decision"] == sum(
        f"{payload}{metadata}".count(mark)
        for payload, metadata in await owner_pool.fetch(
            "select payload::text, metadata::text from workflow_history where category = 'decision'"
        )
    )
