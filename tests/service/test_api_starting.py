"""Starting runs by the hundred, and waiting for them."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from contracts.base import JsonObject
from services.api.waiting import LOOK_SECONDS
from tests.support.api import World, world
from tests.support.postgres import Database


@pytest.fixture
async def api(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        yield made


def item(key: str, **more: str) -> JsonObject:
    return {"context": {"jira_key": key}, "project_id": "core", **more}


async def started(api: World, items: list[JsonObject], *, by: str = "dana", status: int = 200) -> list[JsonObject]:
    answer = await api.call("POST", "/definitions/story/runs:batch", by=by, json={"items": items})
    assert answer.status_code == status, answer.text
    found: list[JsonObject] = answer.json().get("items", [])
    return found


async def test_each_of_many_starts_is_answered_by_itself_and_in_order(api: World) -> None:
    wrong: JsonObject = {"context": {}, "project_id": "core"}
    elsewhere: JsonObject = {"context": {"jira_key": "CORE-3"}, "project_id": "attic"}
    first, second, third, fourth = await started(api, [item("CORE-1"), wrong, elsewhere, item("CORE-4")])
    for one in (first, fourth):
        assert one["problem"] is None
        assert isinstance(one["run"], dict)
        assert one["run"]["state"] == "running"
    problems = [one["problem"] for one in (second, third)]
    assert [p["code"] for p in problems if isinstance(p, dict)] == ["run.context_missing", "project.not_yours"]
    assert (second["run"], third["run"]) == (None, None)
    assert len((await api.get("/runs", by="dana"))["items"]) == 2


async def test_a_key_of_a_batch_is_the_key_of_a_single_start(api: World) -> None:
    keyed = item("CORE-1", idempotency_key="once")
    first, twin, other = await started(api, [keyed, keyed, item("CORE-2", idempotency_key="twice")])
    assert first == twin != other
    (again,) = await started(api, [keyed])
    single = await api.call(
        "POST",
        "/definitions/story/runs",
        by="dana",
        json={"context": {"jira_key": "CORE-1"}, "project_id": "core"},
        headers={"idempotency-key": "once"},
    )
    assert isinstance(first["run"], dict)
    assert single.json()["run_id"] == first["run"]["run_id"]
    assert again == first


async def test_a_batch_has_a_measure_and_a_definition(api: World) -> None:
    assert await started(api, [], status=422) == []
    assert await started(api, [item("CORE-1")] * 501, status=422) == []
    answer = await api.call("POST", "/definitions/nothing/runs:batch", by="dana", json={"items": [item("CORE-1")]})
    assert answer.status_code == 200
    assert answer.json()["items"][0]["problem"]["code"] == "definition.not_found"
    full = await started(api, [item(f"CORE-{n}") for n in range(500)])
    assert len(full) == 500
    assert all(one["problem"] is None for one in full)


async def test_a_start_waits_until_the_run_waits_for_somebody(api: World) -> None:
    body = item("CORE-1")
    waiting = asyncio.create_task(
        api.call("POST", "/definitions/story/runs?wait=30", by="dana", json=body), name="a start that waits"
    )
    run_id = await _only_run(api)
    await api.finish_attempt(run_id, {"title": "Draft"})
    answer = await waiting
    assert (answer.status_code, answer.json()["run_id"], answer.json()["state"]) == (
        201,
        str(run_id),
        "waiting_decision",
    )
    assert answer.json()["version"] == (await api.get(f"/runs/{run_id}"))["version"]


async def test_a_wait_ends_with_its_time_and_says_how_the_run_stands(api: World) -> None:
    answer = await api.call("POST", "/definitions/story/runs?wait=0.05", by="dana", json=item("CORE-1"))
    assert (answer.status_code, answer.json()["state"]) == (201, "running")
    refused = await api.call("POST", "/definitions/story/runs?wait=61", by="dana", json=item("CORE-1"))
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "query.wait")


async def test_a_read_waits_for_a_run_whose_decision_was_answered_and_not_for_one_that_is_at_rest(api: World) -> None:
    run_id, decision_id = await api.waiting()
    async with asyncio.timeout(10):
        assert (await api.get(f"/runs/{run_id}?wait=30"))["state"] == "waiting_decision"
    await api.call("POST", f"/decisions/{decision_id}/reject", by="priya", json={"comment": "No."})
    reading = asyncio.create_task(api.get(f"/runs/{run_id}?wait=30"), name="a read that waits")
    await asyncio.sleep(0)
    await api.plan(run_id)
    assert (await reading)["state"] == "completed"


async def test_a_run_of_another_group_is_not_waited_for(api: World) -> None:
    run_id = await api.start()
    assert (await api.call("GET", f"/runs/{run_id}?wait=30", by="outsider")).status_code == 404


async def test_a_lost_message_is_made_up_for_by_a_look(api: World) -> None:
    api.bus.listeners.clear()
    looking = asyncio.create_task(api.service.waiting.looking(), name="looking")
    run_id = await api.start()
    reading = asyncio.create_task(api.get(f"/runs/{run_id}?wait=30"), name="a read that waits")
    await api.finish_attempt(run_id, {"title": "Draft"})
    async with asyncio.timeout(10 * LOOK_SECONDS):
        assert (await reading)["state"] == "waiting_decision"
    looking.cancel()


async def test_who_waits_is_answered_when_the_api_stops(api: World) -> None:
    run_id = await api.start()
    reading = asyncio.create_task(api.get(f"/runs/{run_id}?wait=60"), name="a read that waits")
    api.service.waiting.close()
    async with asyncio.timeout(10):
        assert (await reading)["state"] == "running"


async def _only_run(api: World) -> UUID:
    async with asyncio.timeout(10):
        while not (items := (await api.get("/runs", by="dana"))["items"]):  # noqa: ASYNC110 - another request's doing
            await asyncio.sleep(0.01)
    return UUID(items[0]["run_id"])
