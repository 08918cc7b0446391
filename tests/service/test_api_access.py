"""Who gets in, and what exists for whom: on every route that the API describes."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from contracts.errors import Rejected
from services.api import auth
from tests.support.api import World, world
from tests.support.postgres import Database

OPEN = {"/healthz", "/readyz"}
WEBHOOK = "/api/public/workflows/events/{source}"


@pytest.fixture
async def api(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        yield made


def routes(made: World) -> list[tuple[str, str]]:
    """(METHOD, path template) of every operation in the API's own description."""
    paths: dict[str, dict[str, Any]] = made.service.app.openapi()["paths"]
    return [(method.upper(), path) for path, operations in paths.items() for method in operations]


def filled(path: str, **values: object) -> str:
    for name, value in values.items():
        path = path.replace("{" + name + "}", str(value))
    return path


async def test_without_a_token_every_route_but_health_is_closed(api: World) -> None:
    closed = [(method, path) for method, path in routes(api) if path not in OPEN and path != WEBHOOK]
    assert len(closed) >= 15
    for method, path in closed:
        target = filled(path, run_id=uuid4(), decision_id=uuid4(), outcome="approve", step="x", definition_id="x")
        for headers in (
            {},
            {"authorization": "Bearer mbt_wrong"},
            {"x-api-key": "wrong"},
            {"authorization": "Basic eDp5"},
        ):
            # The body is not even looked at: it is no JSON, and still the answer is 401.
            answer = await api.http.request(method, target, headers=headers, content=b"{")
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.headers["content-type"] == "application/problem+json"
    for path in (*OPEN, "/docs", "/openapi.json"):
        assert (await api.http.get(path)).status_code == 200


def body(method: str, path: str) -> dict[str, object] | None:
    """A body that the route can read."""
    if method != "POST":
        return None
    if path.endswith("/reassign"):
        return {"to_user": "dana@example.com"}
    return {"artifact": {}} if path.endswith("/complete") else {}


async def test_another_tenant_groups_things_do_not_exist_on_any_route(api: World) -> None:
    run_id, decision_id = await api.waiting()
    values = {"run_id": run_id, "decision_id": decision_id, "outcome": "approve", "step": "draft"}
    tried = 0
    for method, path in routes(api):
        if "{run_id}" not in path and "{decision_id}" not in path:
            continue
        tried += 1
        for caller in ("outsider", "gus"):
            answer = await api.call(method, filled(path, **values), by=caller, json=body(method, path))
            assert answer.status_code == 404, (method, path, caller, answer.text)
        absent = filled(path, **{**values, "run_id": uuid4(), "decision_id": uuid4()})
        answer = await api.call(method, absent, json=body(method, path))
        assert answer.status_code == 404, (method, path, answer.text)
        assert (
            await api.call(method, filled(path, **{**values, "run_id": "x", "decision_id": "x"}))
        ).status_code == 404
    assert tried >= 12
    for path in ("/runs", "/inbox", "/effects"):
        for caller in ("outsider", "gus"):
            assert (await api.get(path, by=caller))["items"] == []
    view = await api.get(f"/runs/{run_id}", by="priya")
    assert view["state"] == "waiting_decision"


async def test_a_definition_of_another_group_is_not_there(api: World) -> None:
    key = await api.identity.provision_group("third")
    user = await api.identity.register_user(key, "third@example.com", roles=["platform_admin", "developer"])
    token = (await api.identity.mint_key(key, name="third", user_id=user)).secret
    assert (await api.get("/definitions", by=token))["items"] == []
    assert (await api.call("GET", "/definitions/story", by=token)).status_code == 404
    body = {"context": {"jira_key": "X"}}
    assert (await api.call("POST", "/definitions/story/runs", by=token, json=body)).status_code == 404


async def test_rights_are_judged_one_by_one(api: World) -> None:
    _, decision_id = await api.waiting()
    assert (await api.call("POST", f"/decisions/{decision_id}/approve", by="dana")).status_code == 403
    # An administrator sees everything and still decides nothing that is not theirs.
    assert (await api.call("POST", f"/decisions/{decision_id}/approve", by="admin")).status_code == 403
    assert (await api.call("PUT", "/definitions", by="priya", json={"files": {}})).status_code == 403


async def test_a_token_is_limited_to_its_scopes(api: World) -> None:
    run_id, decision_id = await api.waiting()
    reader = await api.identity.mint_key(api.place, name="reader", user_id=api.users["priya"], scopes=["read"])
    assert (await api.call("GET", f"/runs/{run_id}", by=reader.secret)).status_code == 200
    refused = await api.call("POST", f"/decisions/{decision_id}/approve", by=reader.secret)
    assert (refused.status_code, refused.json()["code"]) == (403, "auth.scope")
    decider = await api.identity.mint_key(api.place, name="decider", user_id=api.users["priya"], scopes=["decisions"])
    assert (await api.call("GET", f"/runs/{run_id}", by=decider.secret)).status_code == 403
    assert (await api.call("POST", f"/decisions/{decision_id}/approve", by=decider.secret)).status_code == 200


async def test_a_revocation_counts_within_the_promise(api: World) -> None:
    assert auth.CACHED_SECONDS_MAX < 5
    key = await api.identity.mint_key(api.place, name="short", roles=["developer"])
    assert (await api.call("GET", "/me", by=key.secret)).status_code == 200
    await api.identity.revoke_key(api.place, key.id)
    await _until_refused(api, key.secret)


async def test_the_tokens_of_a_deactivated_user_end_with_them(api: World) -> None:
    assert (await api.call("GET", "/me", by="gus")).status_code == 200
    await api.identity.deactivate_user(api.place, api.users["gus"])
    await _until_refused(api, api.tokens["gus"])


async def _until_refused(api: World, token: str) -> None:
    deadline = time.monotonic() + 5
    while (await api.call("GET", "/me", by=token)).status_code != 401:
        assert time.monotonic() < deadline, "the token still counts after 5 s"


async def test_a_key_ends_by_the_databases_clock(api: World) -> None:
    ends = datetime.now(UTC) + timedelta(hours=1)
    key = await api.identity.mint_key(api.place, name="ends", roles=["developer"], expires_at=ends)
    assert (await api.call("GET", "/me", by=key.secret)).status_code == 200
    owner = await asyncpg.connect(api.database.owner_dsn)
    try:
        await owner.execute("update clock_shift set shift = interval '2 hours'")
    finally:
        await owner.close()
    await _until_refused(api, key.secret)


async def test_provisioning_again_changes_nothing_and_keeps_given_secrets(api: World) -> None:
    assert await api.identity.provision_group("example") == api.place
    given = "mbt_given-by-the-development-stack"
    first = await api.identity.mint_key(api.place, name="dev", user_id=api.users["dana"], secret=given)
    again = await api.identity.mint_key(api.place, name="dev", user_id=api.users["dana"], secret=given)
    assert (first.id, again.secret) == (again.id, given)
    assert given not in repr(first)
    assert (await api.get("/me", by=given))["name"] == "dana@example.com"
    with pytest.raises(Rejected) as weak:
        await api.identity.mint_key(api.place, name="dev", user_id=api.users["dana"], secret="short")
    assert weak.value.code == "key.weak"


async def test_secrets_are_kept_nowhere(api: World) -> None:
    owner = await asyncpg.connect(api.database.owner_dsn)
    try:
        rows = await owner.fetch("select payload::text || metadata::text as text from workflow_history")
    finally:
        await owner.close()
    assert rows
    for secret in api.tokens.values():
        assert not any(secret in row["text"] for row in rows)


async def test_a_forged_cursor_shows_nothing_new(api: World) -> None:
    await api.start()
    theirs = await api.get("/runs?limit=1", by="dana")
    assert theirs["next_cursor"] is None
    for cursor in ("x", "W10", "WyJ4IiwgIngiXQ", "ZGVlcA" * 20, "WyIyMDI2LTAxLTAxVDAwOjAwOjAwIiwgIngiXQ"):
        for path in ("/runs", "/inbox", "/effects", "/events", "/schedules"):
            answer = await api.call("GET", path, params={"cursor": cursor})
            assert (answer.status_code, answer.json()["code"]) == (422, "cursor.invalid"), path
