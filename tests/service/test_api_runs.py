"""Runs and decisions through the door, folded from real histories."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from tests.support.api import World, world
from tests.support.postgres import Database


@pytest.fixture
async def api(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        yield made


async def test_a_run_is_read_as_one_whole(api: World) -> None:
    run_id, decision_id = await api.waiting()
    view = await api.get(f"/runs/{run_id}", by="priya")
    assert view["state"] == "waiting_decision"
    assert view["definition_name"] == "Story"
    assert view["initiated_by"] == {"id": str(api.users["dana"]), "email": "dana@example.com"}
    assert view["context"] == {"jira_key": "CORE-1"}
    assert view["trigger"]["kind"] == "manual"
    assert view["cost_microdollars"] == 1_234
    assert [step["key"] for step in view["steps"]] == ["draft", "review", "post"]
    draft, review, post = view["steps"]
    assert (draft["state"], review["state"], post["state"]) == ("succeeded", "waiting", "pending")
    assert draft["attempts"][0]["state"] == "succeeded"
    assert draft["attempts"][0]["model"] == "scripted"
    assert view["waiting_for"][0]["decision_id"] == str(decision_id)
    assert view["waiting_for"][0]["may_answer"] is True
    assert (await api.get(f"/runs/{run_id}", by="dana"))["waiting_for"][0]["may_answer"] is False


async def test_a_decision_shows_the_artefact_and_takes_one_answer(api: World) -> None:
    run_id, decision_id = await api.waiting()
    shown = await api.get(f"/decisions/{decision_id}", by="priya")
    assert shown["artifact"] == {"title": "Draft of CORE-1"}
    assert shown["title"] == "Is it right?"
    assert shown["answer"] is None
    body = {"comment": "Good, with a better title.", "revised_artifact": {"title": "Better"}}
    accepted = await api.call("POST", f"/decisions/{decision_id}/approve", by="priya", json=body)
    assert accepted.status_code == 200, accepted.text
    assert accepted.json() == {
        "decision_id": str(decision_id),
        "run_id": str(run_id),
        "outcome": "approve",
        "revised": True,
        "state": "answered",
        "approvals": 1,
        "needed": 1,
    }
    again = await api.call("POST", f"/decisions/{decision_id}/reject", by="priya")
    assert again.status_code == 409
    assert again.json()["code"] == "decision.answered"
    assert again.json()["extra"]["who"] == "priya@example.com"
    answered = await api.get(f"/decisions/{decision_id}", by="dana")
    assert answered["answer"]["by"]["name"] == "priya@example.com"
    assert answered["revised_artifact"] == {"title": "Better"}

    await api.plan(run_id)
    artifact = await api.get(f"/runs/{run_id}/artifacts/draft")
    assert artifact["state"] == "approved"
    assert artifact["revised"] is True
    assert (artifact["proposed"], artifact["approved"]) == ({"title": "Draft of CORE-1"}, {"title": "Better"})
    [effect] = (await api.get("/effects", by="dana"))["items"]
    assert (effect["tool"], effect["state"], effect["key"]) == ("create", "declared", "post:CORE-1")
    assert effect["arguments"] == {"title": "Better"}
    assert (await api.get(f"/runs/{run_id}"))["effects"] == [effect]
    assert (await api.get("/effects?state=in_doubt"))["items"] == []


async def test_a_lost_reply_is_repeated_under_its_key(api: World) -> None:
    _, decision_id = await api.waiting()
    path, headers = f"/decisions/{decision_id}/approve", {"idempotency-key": "once"}
    first = await api.call("POST", path, by="priya", headers=headers)
    second = await api.call("POST", path, by="priya", headers=headers)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json()
    assert (await api.call("POST", path, by="priya", headers={"idempotency-key": "twice"})).status_code == 409
    assert (await api.call("POST", path, by="priya")).status_code == 409


async def test_a_start_under_a_key_is_one_run(api: World) -> None:
    body = {"context": {"jira_key": "CORE-7"}, "project_id": "core"}
    headers = {"idempotency-key": "story 7"}
    answers = [
        await api.call("POST", "/definitions/story/runs", by="dana", json=body, headers=headers) for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    run_ids = {answer.json()["run_id"] for answer in answers}
    assert len(run_ids) == 1
    assert answers[0].headers["location"].endswith(f"/runs/{run_ids.pop()}")
    other = await api.call("POST", "/definitions/story/runs", by="dana", json=body)
    assert other.json()["run_id"] != answers[0].json()["run_id"]
    assert len((await api.get("/runs", by="dana"))["items"]) == 2


async def test_a_bad_start_names_what_is_missing(api: World) -> None:
    refused = await api.call("POST", "/definitions/story/runs", by="dana", json={"project_id": "core"})
    assert refused.status_code == 422
    assert "context.jira_key" in {item["path"] for item in refused.json()["errors"]}
    stranger = await api.call("POST", "/definitions/story/runs", by="gus", json={"context": {"jira_key": "X"}})
    assert stranger.status_code == 403
    absent = await api.call("POST", "/definitions/nothing/runs", by="dana", json={"context": {}})
    assert absent.status_code == 404
    assert (await api.get("/runs"))["items"] == []


async def test_the_history_reads_as_sentences_in_the_order_of_the_record(api: World) -> None:
    run_id, decision_id = await api.waiting()
    body = {"comment": "Name the\nerror message."}
    asked = await api.call("POST", f"/decisions/{decision_id}/request_changes", by="priya", json=body)
    assert asked.status_code == 200, asked.text
    entries: list[dict[str, object]] = []
    cursor: str | None = None
    while True:
        query = {"limit": 3, **({"cursor": cursor} if cursor else {})}
        page = await api.get(f"/runs/{run_id}/history", by="priya", params=query)
        assert len(page["items"]) <= 3
        entries += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    keys = [(entry["stream_id"], entry["version"]) for entry in entries]
    assert len(set(keys)) == len(keys)
    texts = [str(entry["text"]) for entry in entries]
    assert texts[0] == "dana@example.com created the run in project core"
    assert texts[-1] == "priya@example.com asked for changes on draft: Name the error message."
    assert {entry["stream"] for entry in entries} == {"run", "attempt", "decision"}
    assert all(entry["digest"] and entry["at"] for entry in entries)


async def test_the_inbox_holds_what_the_caller_may_answer(api: World) -> None:
    first = await api.waiting(key="CORE-1")
    second = await api.waiting(key="CORE-2")
    assert (await api.get("/inbox", by="dana"))["items"] == []
    assert (await api.get("/inbox", by="admin"))["items"] == []
    assert (await api.get("/inbox", by="outsider"))["items"] == []
    page = await api.get("/inbox?limit=1", by="priya")
    assert [item["decision"]["decision_id"] for item in page["items"]] == [str(first[1])]
    assert page["items"][0]["run"]["run_id"] == str(first[0])
    rest = await api.get("/inbox", by="priya", params={"cursor": page["next_cursor"]})
    assert [item["decision"]["decision_id"] for item in rest["items"]] == [str(second[1])]
    assert rest["next_cursor"] is None
    await api.call("POST", f"/decisions/{first[1]}/approve", by="priya")
    assert len((await api.get("/inbox", by="priya"))["items"]) == 1


async def test_runs_are_listed_with_filters_and_stable_pages(api: World) -> None:
    started = [await api.start(key=f"CORE-{n}", project="core" if n % 2 else None) for n in range(7)]
    seen: list[UUID] = []
    cursor: str | None = None
    while True:
        page = await api.get("/runs", by="dana", params={"limit": 3, **({"cursor": cursor} if cursor else {})})
        seen += [UUID(item["run_id"]) for item in page["items"]]
        if cursor is None:
            await api.start(key="LATER")
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == started[::-1]
    in_core = (await api.get("/runs?project=core", by="dana"))["items"]
    assert len(in_core) == 4
    assert {item["initiated_by"]["email"] for item in in_core} == {"dana@example.com"}
    assert (await api.get("/runs?state=completed&state=failed", by="dana"))["items"] == []
    assert (await api.get(f"/runs?initiated_by={uuid4()}"))["items"] == []
    assert len((await api.get("/runs?definition=story"))["items"]) == 8
    assert (await api.get("/runs?created_before=2000-01-01T00:00:00Z"))["items"] == []


async def test_a_run_is_cancelled_suspended_and_resumed_with_a_reason(api: World) -> None:
    run_id, decision_id = await api.waiting()
    suspended = await api.call("POST", f"/runs/{run_id}/suspend", by="dana", json={"reason": "holiday"})
    assert (suspended.status_code, suspended.json()["state"]) == (200, "suspended")
    assert (await api.get(f"/runs/{run_id}"))["reason"] == "holiday"
    assert (await api.get("/inbox", by="priya"))["items"] == []
    refused = await api.call("POST", f"/decisions/{decision_id}/approve", by="priya")
    assert refused.status_code == 409
    assert (await api.call("POST", f"/runs/{run_id}/resume", by="dana")).status_code == 200
    forbidden = await api.call("POST", f"/runs/{run_id}/cancel", by="priya")
    assert forbidden.status_code == 403
    cancelled = await api.call("POST", f"/runs/{run_id}/cancel", by="dana")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")


async def test_definitions_are_shown_and_synced_whole(api: World) -> None:
    listed = await api.get("/definitions", by="dana")
    assert [item["id"] for item in listed["items"]] == ["story"]
    view = await api.get("/definitions/story", by="dana")
    assert view["required_context"] == ["jira_key"]
    assert view["may_start"] is True
    assert [step["kind"] for step in view["stages"][0]["steps"]] == ["agent", "decision", "write"]
    assert (await api.get("/definitions/story", by="gus"))["may_start"] is False
    assert (await api.call("PUT", "/definitions", by="dana", json={"files": {}})).status_code == 403
    broken = {"workflows/story/workflow.yaml": "workflow:\n  id: other\n  naem: x\n"}
    refused = await api.call("PUT", "/definitions", json={"files": broken})
    assert refused.status_code == 422
    for item in refused.json()["errors"]:
        assert item["file"] == "workflows/story/workflow.yaml"
        assert item["line"] >= 1
        assert item["path"]
    assert (await api.get("/definitions/story"))["hash"] == view["hash"]
    assert (await api.call("GET", "/definitions/jira")).status_code == 404


async def test_me_is_who_the_token_names(api: World) -> None:
    me = await api.get("/me", by="priya")
    assert (me["kind"], me["name"], me["roles"]) == ("user", "priya@example.com", ["project_manager"])
    key = await api.identity.mint_key(api.place, name="ci", roles=["developer"], projects=["core"])
    mine = await api.http.get("/api/public/admin/workflows/me", headers={"x-api-key": key.secret})
    assert (mine.json()["kind"], mine.json()["name"]) == ("api_key", "ci")


async def test_a_bus_that_is_away_is_said_with_the_id_of_the_command(api: World) -> None:
    run_id = await api.start()
    api.bus.away = True
    away = await api.call("POST", f"/runs/{run_id}/cancel", by="dana")
    assert away.status_code == 503
    assert away.headers["retry-after"]
    assert UUID(away.json()["extra"]["command_id"])
    assert (await api.call("GET", f"/runs/{run_id}", by="dana")).status_code == 200
    ready = await api.call("GET", "/readyz", by=None)
    assert ready.status_code == 503
    assert ready.json() == {"status": "not_ready", "database": True, "bus": False}
