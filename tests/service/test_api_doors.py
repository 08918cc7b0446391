"""The doors to the whole language, with the owners behind them: manual steps, events, versions, schedules, turns."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from libs.bus.memory import MemoryBroker, MemoryBus
from services.ingest.app import build as build_ingest
from services.scheduler.app import build as build_scheduler
from tests.support.api import World, world
from tests.support.postgres import Database

CONTRACT = """
workflow:
  id: contract
  name: Contract
  context: { required: [ticket] }
  triggers:
    - { kind: manual, roles: [developer] }
    - { kind: schedule, cron: "0 0 7 * * 1", timezone: Europe/Berlin, project: core }
  run_as: dana@example.com
  roles:
    product_owner: { roles: [project_manager] }
    anybody: { project: true }
  variants:
    default: { context.ticket: weekly }
    short: { stages.only.steps.review.role: anybody }
  stages:
    - key: only
      steps:
        - { key: sign, kind: manual, role: product_owner, output: schemas/signed.json }
        - { key: answer, kind: event, source: open, match: { event: answered, ticket: $context.ticket } }
        - { key: checked, kind: gate, gate: steps.answer.keys.ok == true }
        - { key: review, kind: decision, role: product_owner, artifact: sign }
"""
ONE_BY_ONE = """
workflow:
  id: queue
  name: One by one
  concurrency: { key: "{{context.ticket}}", limit: 1 }
  triggers: [{ kind: manual, roles: [developer] }]
  stages: [{ key: only, steps: [{ key: wait, kind: manual }] }]
"""
FILES: Mapping[str, str] = {
    "workflows/contract/workflow.yaml": CONTRACT,
    "workflows/contract/schemas/signed.json": """{"type": "object", "required": ["signed"], "properties":
      {"signed": {"type": "boolean"}}, "additionalProperties": false}""",
    "workflows/queue/workflow.yaml": ONE_BY_ONE,
}
SIGNED = {"artifact": {"signed": True}}


@pytest.fixture
async def api(database: Database) -> AsyncIterator[World]:
    bus = MemoryBus(MemoryBroker(), name="doors")
    async with world(database, bus=bus, services=(build_ingest, build_scheduler)) as made:
        await sync(made, FILES)
        yield made


async def sync(api: World, files: Mapping[str, str], **more: Any) -> Any:
    files = {"sources.yaml": "sources: [{ id: open, kind: webhook, adapter: generic }]\n", **files}
    answer = await api.call("PUT", "/definitions", json={"files": files, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def start(api: World, ticket: str, *, definition: str = "contract", **more: Any) -> UUID:
    body = {"context": {"ticket": ticket}, "project_id": "core", **more}
    answer = await api.call("POST", f"/definitions/{definition}/runs", by="dana", json=body)
    assert answer.status_code == 201, answer.text
    return UUID(answer.json()["run_id"])


async def send(api: World, ticket: str, *, external_id: str, ok: bool = True, event: str = "answered") -> UUID:
    body = {"event": event, "external_id": external_id, "keys": {"ticket": ticket, "ok": ok}}
    answer = await api.call("POST", "/api/public/workflows/events/open", json=body)
    assert answer.status_code == 202, answer.text
    return UUID(answer.json()["event_id"])


async def until(look: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool]) -> Any:
    """What is looked at, once it holds: others are at work."""
    async with asyncio.timeout(15):
        while not holds(found := await look()):  # noqa: ASYNC110  other services' doing
            await asyncio.sleep(0.02)
    return found


async def waits_for(api: World, run_id: UUID, kind: str) -> dict[str, Any]:
    view = await until(
        lambda: api.get(f"/runs/{run_id}"), lambda run: [w["kind"] for w in run["waiting_for"]] == [kind]
    )
    waiting: dict[str, Any] = view["waiting_for"][0]
    return waiting


async def to_the_event(api: World, ticket: str, **more: Any) -> UUID:
    run_id = await start(api, ticket, **more)
    answer = await api.call("POST", f"/runs/{run_id}/steps/sign/complete", by="priya", json=SIGNED)
    assert answer.status_code == 200, answer.text
    await waits_for(api, run_id, "event")
    return run_id


async def stopped(api: World, ticket: str) -> UUID:
    """A run that its gate has suspended."""
    run_id = await to_the_event(api, ticket)
    await send(api, ticket, external_id=f"no {ticket}", ok=False)
    await until(lambda: api.get(f"/runs/{run_id}"), lambda run: run["state"] == "suspended")
    return run_id


async def test_a_manual_step_is_completed_once_by_a_holder_of_its_role(api: World) -> None:
    run_id = await start(api, "T-1")
    path = f"/runs/{run_id}/steps/sign/complete"
    waiting = await waits_for(api, run_id, "manual")
    assert (waiting["step"], waiting["role"], waiting["may_complete"]) == ("sign", "product_owner", False)
    assert (await api.get(f"/runs/{run_id}", by="priya"))["waiting_for"][0]["may_complete"] is True
    assert (await api.call("POST", path, by="dana", json=SIGNED)).json()["code"] == "step.not_yours"
    assert (await api.call("POST", path, by="outsider", json=SIGNED)).status_code == 404
    misfit = await api.call("POST", path, by="priya", json={"artifact": {"signed": "yes"}})
    assert (misfit.status_code, misfit.json()["errors"][0]["path"]) == (422, "artifact.signed")

    once = {"idempotency-key": "once"}
    first = await api.call("POST", path, by="priya", json={**SIGNED, "comment": "Both sides."}, headers=once)
    again = await api.call("POST", path, by="priya", json={**SIGNED, "comment": "Both sides."}, headers=once)
    assert (first.status_code, again.status_code) == (200, 200), first.text
    other = await api.call("POST", path, by="priya", json=SIGNED)
    assert (other.status_code, other.json()["extra"]["who"]) == (409, "priya@example.com"), other.text
    assert (await api.get(f"/runs/{run_id}/artifacts/sign"))["proposed"] == {"signed": True}
    texts = [entry["text"] for entry in (await api.get(f"/runs/{run_id}/history"))["items"]]
    assert "priya@example.com completed sign: Both sides." in texts


async def test_manual_steps_stand_in_the_list_of_those_who_may_complete_them(api: World) -> None:
    ids = [str(await start(api, f"TASK-{n}")) for n in range(3)]
    for run_id in ids:
        await waits_for(api, UUID(run_id), "manual")

    async def listed(by: str, **query: Any) -> list[dict[str, Any]]:
        page = await api.get("/tasks", by=by, params=query)
        items: list[dict[str, Any]] = page["items"]
        while page["next_cursor"]:
            page = await api.get("/tasks", by=by, params={**query, "cursor": page["next_cursor"]})
            items += page["items"]
        return [item for item in items if item["run"]["run_id"] in ids]

    tasks = await listed("priya")
    assert [task["run"]["run_id"] for task in tasks] == ids, "the oldest first"
    assert {(task["step"], task["title"], task["role"]) for task in tasks} == {("sign", "sign", "product_owner")}
    assert tasks[0]["output_schema"]["required"] == ["signed"]
    assert await listed("priya", limit=1) == tasks
    assert await listed("dana") == [], "it is not the initiator's, since it has a role"
    assert await listed("outsider") == []

    await api.call("POST", f"/runs/{ids[0]}/steps/sign/complete", by="priya", json=SIGNED)
    await api.call("POST", f"/runs/{ids[1]}/suspend", by="dana", json={})
    assert [task["run"]["run_id"] for task in await listed("priya")] == ids[2:]


async def test_an_event_that_was_early_is_shown_as_taken_once_its_run_has_taken_it(api: World) -> None:
    run_id = await start(api, "EARLY-1")
    early = str(await send(api, "EARLY-1", external_id="before its wait"))

    async def lost() -> bool:
        return early in [e["event_id"] for e in (await api.get("/events?unmatched=true"))["items"]]

    await until(lost, bool)
    assert (await api.get(f"/events/{early}"))["taken_by"] == []
    await api.call("POST", f"/runs/{run_id}/steps/sign/complete", by="priya", json=SIGNED)
    await waits_for(api, run_id, "decision")
    assert not await lost()
    listed = [e for e in (await api.get("/events?unmatched=false"))["items"] if e["event_id"] == early]
    shown = await api.get(f"/events/{early}")
    assert [(e["unmatched"], e["taken_by"]) for e in (*listed, shown)] == [(None, [str(run_id)])] * 2


async def test_an_event_finds_its_run_and_is_shown_with_what_followed(api: World) -> None:
    run_id = await to_the_event(api, "T-2")
    waiting = await waits_for(api, run_id, "event")
    assert (waiting["source"], waiting["match"]) == ("open", {"event": "answered", "ticket": "T-2"})
    lost = await send(api, "T-3", external_id="early")
    found = await send(api, "T-2", external_id="right")
    decision = await waits_for(api, run_id, "decision")
    assert decision["step"] == "review"

    listed = await until(
        lambda: api.get("/events?source=open"), lambda page: all(e["state"] == "routed" for e in page["items"])
    )
    assert [event["event_id"] for event in listed["items"]] == [str(found), str(lost)]
    assert [e["event_id"] for e in (await api.get("/events?unmatched=true"))["items"]] == [str(lost)]
    first = await api.get("/events?limit=1")
    rest = await api.get("/events", params={"limit": 1, "cursor": first["next_cursor"]})
    assert [*first["items"], *rest["items"]] == listed["items"]

    view = await api.get(f"/events/{found}")
    assert view["keys"] == {"ticket": "T-2", "ok": True}
    assert view["routings"][0]["resumed"] == [{"run_id": str(run_id), "step": "answer"}]
    assert view["routings"][0]["how"] == "routed"
    streams = {entry["stream"] for entry in (await api.get(f"/runs/{run_id}/history"))["items"]}
    assert "wait" in streams, "the wait's own facts are part of the run's history"


async def test_an_event_is_handed_on_again_by_administrators(api: World) -> None:
    event = await send(api, "T-4", external_id="elsewhere", event="misspelt")
    await until(lambda: api.get("/events"), lambda page: [e["state"] for e in page["items"]] == ["routed"])
    run_id = await to_the_event(api, "T-4")
    body = {"run_id": str(run_id), "step": "answer"}
    for path, json in ((f"/events/{event}/replay", {}), (f"/events/{event}/deliver", body)):
        refused = await api.call("POST", path, by="priya", json=json)
        assert (refused.status_code, refused.json()["code"]) == (403, "event.not_yours")
        assert (await api.call("POST", path, by="outsider", json=json)).status_code == 404
    assert (await api.call("GET", "/events", by="priya")).status_code == 403
    assert (await api.get("/events", by="outsider"))["items"] == []
    assert (await api.call("GET", f"/events/{event}", by="outsider")).status_code == 404
    assert (await api.call("POST", f"/events/{uuid4()}/replay")).status_code == 404

    replayed = await api.call("POST", f"/events/{event}/replay")
    assert (replayed.status_code, replayed.json()["resumed"]) == (200, []), replayed.text
    delivered = await api.call("POST", f"/events/{event}/deliver", json=body)
    assert delivered.status_code == 200, delivered.text
    assert delivered.json()["resumed"] == [{"run_id": str(run_id), "step": "answer"}]
    await waits_for(api, run_id, "decision")
    view = await api.get(f"/events/{event}")
    assert [routing["how"] for routing in view["routings"]] == ["routed", "replayed", "delivered"]
    assert view["routings"][2]["by"]["name"] == "admin@example.com"
    again = await api.call("POST", f"/events/{event}/deliver", json=body)
    assert again.status_code == 409, again.text


async def test_a_run_is_begun_anew_and_knows_where_from(api: World) -> None:
    run_id = await to_the_event(api, "T-5")
    once = {"idempotency-key": "once"}
    path = f"/runs/{run_id}/restart"
    answers = [await api.call("POST", path, by="dana", headers=once) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201], answers[0].text
    [restarted] = {answer.json()["run_id"] for answer in answers}
    assert answers[0].headers["location"].endswith(f"/runs/{restarted}")
    assert (await api.call("POST", path, by="priya")).json()["code"] == "run.not_yours"

    body = {"context": {"ticket": "T-6"}, "artifacts": {"sign": {"signed": False}}}
    forked = await api.call("POST", f"/runs/{run_id}/fork", by="dana", json=body)
    assert forked.status_code == 201, forked.text
    fork = forked.json()["run_id"]
    both = await api.call("POST", f"/runs/{run_id}/fork", by="dana", json={"at_version": 2, "from_step": "sign"})
    assert (both.status_code, both.json()["code"]) == (422, "fork.point")

    view = await api.get(f"/runs/{fork}")
    assert (view["parent"], view["context"]) == (str(run_id), {"ticket": "T-6"})
    assert view["waiting_for"][0]["match"]["ticket"] == "T-6"
    assert (await api.get(f"/runs/{fork}/artifacts/sign"))["proposed"] == {"signed": False}
    assert (await api.get(f"/runs/{run_id}"))["forks"] == [restarted, fork]
    listed = await api.get(f"/runs?parent={run_id}", by="dana")
    assert [run["run_id"] for run in listed["items"]] == [fork, restarted]
    assert [run["parent"] for run in listed["items"]] == [str(run_id)] * 2


async def test_a_variant_is_named_at_the_start(api: World) -> None:
    run_id = await start(api, "T-7", variant="short")
    assert (await api.get(f"/runs/{run_id}"))["variant"] == "short"
    body = {"context": {"ticket": "T-7"}, "project_id": "core", "variant": "long"}
    refused = await api.call("POST", "/definitions/contract/runs", by="dana", json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "run.variant_unknown")
    assert "default, short" in refused.json()["detail"]
    assert (await api.get("/definitions/contract"))["variants"] == ["short"]


async def test_a_run_is_found_by_its_context(api: World) -> None:
    mine, _ = await start(api, "T-8"), await start(api, "T-9")
    found = await api.get("/runs?context.ticket=T-8", by="dana")
    assert [run["run_id"] for run in found["items"]] == [str(mine)]
    assert (await api.get("/runs?context.ticket=T-8&context.other=1"))["items"] == []
    assert (await api.get("/runs?context.ticket=T-8", by="outsider"))["items"] == []
    twice = await api.call("GET", "/runs?context.ticket=T-8&context.ticket=T-9")
    assert (twice.status_code, twice.json()["errors"][0]["path"]) == (422, "query.context")


async def test_many_runs_are_counted_first_and_then_changed_one_by_one(api: World) -> None:
    runs = [await stopped(api, f"B-{number}") for number in range(3)]
    spared = await start(api, "B-9")
    body: dict[str, Any] = {"act": "retry", "filter": {"definition": "contract"}}
    counted = (await api.call("POST", "/runs:bulk", json=body)).json()
    assert (counted["count"], counted["items"]) == (3, [])
    assert {run["run_id"] for run in counted["sample"]} == set(map(str, runs))

    wrong = await api.call("POST", "/runs:bulk", json={**body, "confirm": 2})
    assert (wrong.status_code, wrong.json()["code"], wrong.json()["extra"]) == (409, "bulk.count_changed", {"count": 3})
    done = (await api.call("POST", "/runs:bulk", json={**body, "confirm": 3})).json()
    assert [item["step"] for item in done["items"]] == ["checked"] * 3
    assert all(item["run"] and not item["problem"] for item in done["items"])

    cancel = {"act": "cancel", "filter": {"context": {"ticket": "B-1"}}, "confirm": 1, "reason": "not needed"}
    by_priya = (await api.call("POST", "/runs:bulk", by="priya", json=cancel)).json()
    assert by_priya["items"][0]["problem"]["code"] == "run.not_yours", "each run's owner says who may"
    assert (await api.call("POST", "/runs:bulk", by="outsider", json=cancel)).status_code == 409
    ended = (await api.call("POST", "/runs:bulk", by="dana", json=cancel)).json()
    assert (ended["items"][0]["run"]["state"], ended["count"]) == ("cancelled", 1)
    entries = (await api.get(f"/runs/{runs[1]}/history", params={"limit": 200}))["items"]
    assert "dana@example.com cancelled the run: not needed" in [entry["text"] for entry in entries]
    assert (await api.get(f"/runs/{spared}"))["state"] == "waiting_decision"
    nothing = {"act": "cancel", "filter": {"state": ["completed"]}, "confirm": 0}
    assert (await api.call("POST", "/runs:bulk", json=nothing)).json()["count"] == 0


async def test_versions_are_compared_and_promoted(api: World) -> None:
    [old] = (await api.get("/definitions/contract"))["versions"]
    run_id = await start(api, "V-1")
    await waits_for(api, run_id, "manual")
    changed = {
        **FILES,
        "workflows/contract/workflow.yaml": CONTRACT.replace("role: product_owner, output", "output").replace(
            "        - { key: checked, kind: gate, gate: steps.answer.keys.ok == true }\n", ""
        ),
    }
    await sync(api, changed, canary_percent=10)
    summary = next(d for d in (await api.get("/definitions"))["items"] if d["id"] == "contract")
    assert (summary["hash"], summary["canary_percent"]) == (old["hash"], 10)
    new = summary["declared_hash"]
    assert new != old["hash"]
    versions = (await api.get("/definitions/contract"))["versions"]
    assert [(v["hash"], v["current"], v["canary_percent"]) for v in versions] == [
        (new, False, 10),
        (old["hash"], True, None),
    ]

    found = await api.get("/definitions/contract/diff")
    assert (found["before"], found["after"], found["settings"]) == (old["hash"], new, [])
    assert [(step["key"], step["kind"]) for step in found["steps"]] == [("sign", "changed"), ("checked", "removed")]
    assert found["steps"][0]["fields"] == [{"path": "role", "before": "product_owner", "after": None}]
    assert found["open_runs"] == 1
    assert [(touched["run"]["run_id"], touched["steps"]) for touched in found["touched"]] == [(str(run_id), ["sign"])]
    back = await api.get(f"/definitions/contract/diff?before={new[:10]}&after={old['hash'][:10]}")
    assert [(step["key"], step["kind"]) for step in back["steps"]] == [("sign", "changed"), ("checked", "added")]

    path, body = "/definitions/contract/promote", {"hash": new[:12]}
    assert (await api.call("POST", path, by="dana", json=body)).status_code == 403
    assert (await api.call("POST", path, by="outsider", json=body)).status_code == 404
    assert (await api.call("POST", path, json={"hash": "0" * 12})).json()["code"] == "version.not_found"
    promoted = await api.call("POST", path, json=body)
    assert (promoted.status_code, promoted.json()["hash"]) == (200, new), promoted.text
    assert (await api.get("/definitions/contract"))["hash"] == new
    assert (await api.get("/definitions/contract"))["canary_percent"] is None


async def test_schedules_show_their_next_firings_and_are_paused(api: World) -> None:
    listed = await until(lambda: api.get("/schedules", by="dana"), lambda page: bool(page["items"]))
    [schedule] = listed["items"]
    assert (schedule["definition_id"], schedule["line"], schedule["state"]) == ("contract", "0 0 7 * * 1", "active")
    moments = [datetime.fromisoformat(slot["local"]) for slot in schedule["next"]]
    assert len(moments) == 5
    assert all((at.weekday(), at.hour, at.minute, at.second) == (0, 7, 0, 0) for at in moments)
    assert [at.astimezone(UTC) for at in moments] == [datetime.fromisoformat(s["at"]) for s in schedule["next"]]
    assert (await api.get("/schedules", by="outsider"))["items"] == []

    path = f"/schedules/{schedule['schedule_id']}"
    refused = await api.call("POST", f"{path}/pause", by="dana")
    assert (refused.status_code, refused.json()["code"]) == (403, "schedule.not_yours")
    assert (await api.call("POST", f"{path}/pause", by="outsider")).status_code == 404
    paused = await api.call("POST", f"{path}/pause")
    assert (paused.status_code, paused.json()["state"]) == (200, "paused"), paused.text
    [schedule] = (await api.get("/schedules?state=paused&definition=contract"))["items"]
    assert schedule["next"] == []
    assert (await api.call("POST", f"{path}/resume")).json()["state"] == "active"


async def test_a_held_run_says_who_is_before_it(api: World) -> None:
    first = await start(api, "Q-1", definition="queue")
    await waits_for(api, first, "manual")
    second = await start(api, "Q-1", definition="queue")
    await waits_for(api, second, "turn")
    third = await start(api, "Q-1", definition="queue")
    waiting = await waits_for(api, third, "turn")
    assert (waiting["key"], waiting["limit"], waiting["held_by"], waiting["ahead"]) == ("Q-1", 1, [str(first)], 1)
    await api.call("POST", f"/runs/{first}/steps/wait/complete", by="dana", json={"artifact": {}})
    await waits_for(api, second, "manual")
    assert (await waits_for(api, third, "turn"))["ahead"] == 0
