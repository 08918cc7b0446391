"""Letting others decide over the door: who may, what they see for it, and how it is recorded."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from contracts.events.run import RunStepInherited
from tests.support.api import World, world
from tests.support.postgres import Database

LATER = (datetime.now(UTC) + timedelta(days=30)).isoformat()


@pytest.fixture
async def api(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        yield made


async def fresh(api: World, name: str) -> str:
    """A token of somebody that no cache knows yet."""
    minted = await api.identity.mint_key(api.place, name=f"another of {name}", user_id=api.users[name])
    return minted.secret


async def delegated(api: World, by: str, **body: Any) -> dict[str, Any]:
    response = await api.call("POST", "/delegations", by=by, json={"ends_at": LATER, **body})
    assert response.status_code == 201, response.text
    return dict(response.json())


async def test_a_delegate_sees_and_answers_for_the_other_and_is_recorded_as_such(api: World) -> None:
    run_id, decision_id = await api.waiting()
    assert (await api.call("GET", f"/decisions/{decision_id}", by="gus")).status_code == 404
    made = await delegated(api, "priya", to_user="gus@example.com", roles=["product_owner"])
    assert (made["state"], made["from_user"]["email"]) == ("in_force", "priya@example.com")
    gus = await fresh(api, "gus")
    inbox = await api.get("/inbox", by=gus)
    assert [item["decision"]["decision_id"] for item in inbox["items"]] == [str(decision_id)]
    assert (await api.get(f"/decisions/{decision_id}", by=gus))["may_answer"]
    assert (await api.get(f"/runs/{run_id}", by=gus))["run_id"] == str(run_id)
    answer = await api.call("POST", f"/decisions/{decision_id}/approve", by=gus, json={})
    assert answer.status_code == 200, answer.text
    view = await api.get(f"/decisions/{decision_id}", by="priya")
    assert (view["answer"]["by"]["name"], view["answer"]["on_behalf_of"]["email"]) == (
        "gus@example.com",
        "priya@example.com",
    )
    assert (await api.call("GET", f"/runs/{run_id}", by=gus)).status_code == 404, "the run asks nobody any more"


async def test_a_fork_is_told_who_decided_and_revised_and_in_whose_place(api: World) -> None:
    run_id, decision_id = await api.waiting()
    await delegated(api, "priya", to_user="gus@example.com")
    body = {"revised_artifact": {"title": "Better"}}
    answer = await api.call("POST", f"/decisions/{decision_id}/approve", by=await fresh(api, "gus"), json=body)
    assert answer.status_code == 200, answer.text
    await api.plan(run_id)
    forked = await api.call("POST", f"/runs/{run_id}/fork", by="dana", json={})
    assert forked.status_code == 201, forked.text
    fork_id = UUID(forked.json()["run_id"])
    facts = (await api.store.events("run", [fork_id], tenant_group=api.place.tenant_group))[fork_id]
    inherited = {fact.event.step: fact.event for fact in facts if isinstance(fact.event, RunStepInherited)}
    both = {api.users["gus"], api.users["priya"]}
    assert set(inherited["draft"].revisers) == both
    assert set(inherited["review"].deciders) == both


@pytest.mark.parametrize(
    "body",
    [
        {"to_user": "gus@example.com", "roles": ["another_role"]},
        {"to_user": "gus@example.com", "starts_at": (datetime.now(UTC) + timedelta(days=1)).isoformat()},
        {"to_user": "dana@example.com"},
    ],
    ids=["another role", "not yet", "somebody else"],
)
async def test_what_is_not_delegated_is_not_there(api: World, body: dict[str, Any]) -> None:
    _, decision_id = await api.waiting()
    await delegated(api, "priya", **body)
    gus = await fresh(api, "gus")
    assert (await api.get("/inbox", by=gus))["items"] == []
    refused = await api.call("POST", f"/decisions/{decision_id}/approve", by=gus, json={})
    assert refused.status_code in {403, 404}


async def test_a_delegation_goes_one_step_only(api: World) -> None:
    await api.waiting()
    await delegated(api, "priya", to_user="dana@example.com")
    await delegated(api, "dana", to_user="gus@example.com")
    assert (await api.get("/inbox", by=await fresh(api, "gus")))["items"] == []
    assert len((await api.get("/inbox", by=await fresh(api, "dana")))["items"]) == 1


async def test_what_was_ended_and_who_has_left_count_no_more(api: World) -> None:
    await api.waiting()
    first = await delegated(api, "priya", to_user="gus@example.com")
    ended = await api.call("DELETE", f"/delegations/{first['delegation_id']}", by="gus")
    assert (ended.status_code, ended.json()["state"]) == (200, "ended")
    assert (await api.get("/inbox", by=await fresh(api, "gus")))["items"] == []
    await delegated(api, "priya", to_user="gus@example.com")
    assert len((await api.get("/inbox", by=await fresh(api, "gus")))["items"]) == 1
    await api.identity.deactivate_user(api.place, api.users["priya"])
    assert (await api.get("/inbox", by=await fresh(api, "gus")))["items"] == []


async def test_who_may_delegate_what_and_who_sees_it(api: World) -> None:
    for caller, body, status in (
        ("dana", {"to_user": "gus@example.com", "from_user": "priya@example.com"}, 403),
        ("admin", {"to_user": "gus@example.com", "from_user": "priya@example.com"}, 201),
        ("dana", {"to_user": "dana@example.com"}, 422),
        ("dana", {"to_user": "nobody@example.com"}, 404),
        ("dana", {"to_user": "outsider@example.com"}, 404),
        ("dana", {"to_user": "gus@example.com", "ends_at": "2020-01-01T00:00:00Z"}, 422),
    ):
        response = await api.call("POST", "/delegations", by=caller, json={"ends_at": LATER, **body})
        assert response.status_code == status, (caller, body, response.text)
    seen = {
        caller: len((await api.get("/delegations", by=caller))["items"])
        for caller in ("admin", "priya", "gus", "dana", "outsider")
    }
    assert seen == {"admin": 1, "priya": 1, "gus": 1, "dana": 0, "outsider": 0}
    [one] = (await api.get("/delegations"))["items"]
    for caller in ("dana", "outsider"):
        refused = await api.call("DELETE", f"/delegations/{one['delegation_id']}", by=caller)
        assert (refused.status_code, refused.json()["code"]) == (404, "delegation.not_found")
    assert (await api.call("DELETE", f"/delegations/{uuid4()}")).status_code == 404


async def test_the_same_request_again_is_the_same_delegation(api: World) -> None:
    request = {"json": {"to_user": "gus@example.com", "ends_at": LATER}, "headers": {"idempotency-key": "k"}}
    first, again = [await api.call("POST", "/delegations", by="priya", **request) for _ in range(2)]
    assert first.json() == again.json()


async def test_an_administrator_puts_somebody_in_the_place_of_another(api: World) -> None:
    _, decision_id = await api.waiting()
    body = {"to_user": "dana@example.com", "from_user": "priya@example.com", "reason": "on leave"}
    refused = await api.call("POST", f"/decisions/{decision_id}/reassign", by="priya", json=body)
    assert (refused.status_code, refused.json()["code"]) == (403, "decision.not_yours")
    moved = await api.call("POST", f"/decisions/{decision_id}/reassign", json=body)
    assert moved.status_code == 200, moved.text
    assert (await api.call("POST", f"/decisions/{decision_id}/approve", by="priya", json={})).status_code == 403
    assert (await api.call("POST", f"/decisions/{decision_id}/approve", by="dana", json={})).status_code == 200


async def test_an_answer_to_what_is_not_shown_any_more_is_stale(api: World) -> None:
    _, decision_id = await api.waiting()
    view = await api.get(f"/decisions/{decision_id}", by="priya")
    stale = await api.call("POST", f"/decisions/{decision_id}/approve", by="priya", json={"shown": "0" * 64})
    assert (stale.status_code, stale.json()["code"]) == (409, "decision.stale")
    assert stale.json()["extra"] == {"shown": view["shown_digest"]}
    taken = await api.call(
        "POST", f"/decisions/{decision_id}/approve", by="priya", json={"shown": view["shown_digest"]}
    )
    assert (taken.status_code, taken.json()["state"]) == (200, "answered")
    assert UUID(taken.json()["decision_id"]) == decision_id
