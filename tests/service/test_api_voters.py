"""Who may still vote is what the decider would accept: shown of a quorum, whoever was named."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from typer.testing import CliRunner

import libs.postgres
from libs.domain import decision
from libs.eventstore.snapshots import read_states
from libs.process.http import listen, serve
from minutebook.cli.main import build
from services.decision.people import People as Voters
from tests.support.api import World, world
from tests.support.postgres import Database

BOARD = """
workflow:
  id: board
  name: A board decides
  triggers: [{ kind: manual, roles: [project_manager] }]
  roles:
    board: { roles: [project_manager] }
  stages:
    - key: only
      steps:
        - { key: draft, kind: agent, agent: echo, prompt: prompts/draft.md }
        - { key: review, kind: decision, role: board, artifact: draft, not: [initiator], approvals: { need: 2 } }
"""
FILES = {"workflows/board/workflow.yaml": BOARD, "workflows/board/prompts/draft.md": "Draft it.\n"}
MIGRATION = Path(libs.postgres.__file__).parent / "migrations/0010_expand_holders.sql"
NAMED = ("ida", "left", "moved", "paul", "priya", "vera")


@pytest.fixture
async def api(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        for name in set(NAMED) - {"priya"}:
            projects = ["core"]
            user_id = await made.identity.register_user(
                made.place, f"{name}@example.com", roles=["project_manager"], projects=projects
            )
            minted = await made.identity.mint_key(made.place, name=name, user_id=user_id)
            made.users[name], made.tokens[name] = user_id, minted.secret
        answer = await made.call("PUT", "/definitions", json={"files": FILES})
        assert answer.status_code == 200, answer.text
        yield made


async def asked_of_the_board(api: World) -> UUID:
    """The decision of a run that ida started."""
    answer = await api.call("POST", "/definitions/board/runs", by="ida", json={"context": {}, "project_id": "core"})
    assert answer.status_code == 201, answer.text
    run_id = UUID(answer.json()["run_id"])
    await api.finish_attempt(run_id, {"title": "Draft"})
    return UUID((await api.get(f"/runs/{run_id}"))["waiting_for"][0]["decision_id"])


async def seat(api: World, decision_id: UUID) -> dict[str, Any]:
    [found] = (await api.get(f"/decisions/{decision_id}"))["quorum"]["seats"]
    seat: dict[str, Any] = found
    return seat


def names(people: list[dict[str, Any]]) -> set[str]:
    return {person["email"].partition("@")[0] for person in people}


async def test_who_may_still_vote_is_who_is_taken(api: World) -> None:
    decision_id = await asked_of_the_board(api)
    path = f"/decisions/{decision_id}"
    assert (await api.call("POST", f"{path}/approve", by="priya")).status_code == 200
    await api.identity.deactivate_user(api.place, api.users["left"])
    answer = await api.call(
        "POST", f"{path}/reassign", json={"from_user": "moved@example.com", "to_user": "dana@example.com"}
    )
    assert answer.status_code == 200, answer.text

    shown = await seat(api, decision_id)
    assert names(shown["voters"]) == {*NAMED, "dana"} - {"moved"}
    assert names(shown["may_answer"]) == {"paul", "vera", "dana"}, "not who started it, voted, left or was relieved"

    refused = names(shown["voters"]) - names(shown["may_answer"]) - {"left"}
    for name in refused:
        assert (await api.call("POST", f"{path}/approve", by=name)).status_code in {403, 409}, name
        assert (await api.get(path, by=name))["may_answer"] is False
    for name in names(shown["may_answer"]):
        assert (await api.get(path, by=name))["may_answer"] is True
    assert (await api.call("POST", f"{path}/approve", by="paul")).json()["state"] == "answered"
    assert (await seat(api, decision_id))["may_answer"] == []


async def test_users_of_before_the_column_are_found_and_the_migration_tells_of_them(
    api: World, owner_pool: asyncpg.Pool
) -> None:
    rows = "select stream_id, holds from identity_heads order by 1"
    told = await owner_pool.fetch(rows)
    assert dict(told)[api.users["dana"]] == ["project:core", "role:developer"]
    await owner_pool.execute("update identity_heads set holds = null")
    everybody = {api.users[name] for name in {*NAMED, "admin", "dana", "gus"}}
    assert set(await api.store.holders(api.place.tenant_group, ["role:nobodys"])) == everybody
    lines = [line for line in MIGRATION.read_text("utf-8").splitlines() if not line.startswith("--")]
    for statement in "\n".join(lines).split(";"):
        if statement.strip().startswith("update"):
            await owner_pool.execute(statement)
    assert await owner_pool.fetch(rows) == told


async def test_the_voters_are_read_and_nobody_else(api: World) -> None:
    """However many people a tenant group has."""
    asked: list[UUID] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(api.store, name)

        async def events(self, category: str, stream_ids: Any, *, tenant_group: UUID) -> Any:
            asked.extend(stream_ids)
            return await api.store.events(category, stream_ids, tenant_group=tenant_group)

    decision_id = await asked_of_the_board(api)
    [(_, state)] = (await read_states(api.store, decision.CATEGORY, [decision_id])).values()
    store: Any = Watched()
    found = await Voters(store).holding(api.place.tenant_group, [state])
    assert {person.id for person in found} == {api.users[name] for name in NAMED} == set(asked)


async def test_the_command_line_tells_them_apart(api: World) -> None:
    decision_id = await asked_of_the_board(api)
    await api.call("POST", f"/decisions/{decision_id}/approve", by="priya")
    running = await serve(api.service.app, listen("127.0.0.1", 0), drain=timedelta(seconds=1))
    environment = {"MINUTEBOOK_SERVER_ADDRESS": running.url, "MINUTEBOOK_API_KEY": api.tokens["admin"]}
    try:
        arguments = ["decisions", "show", str(decision_id)]
        done = await asyncio.to_thread(CliRunner(env=environment).invoke, build(), arguments)
    finally:
        await running.stop()
    [line] = [line for line in done.output.splitlines() if line.startswith("  board")]
    named, _, still = line.partition("; may still vote: ")
    assert "ida@example.com" in named
    assert set(still.split()) == {f"{name}@example.com" for name in ("left", "moved", "paul", "vera")}
