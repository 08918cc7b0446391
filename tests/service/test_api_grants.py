"""Grants and users over the door: whose affair they are, what is shown of them, and what is kept."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from contracts import ids
from libs.config import Secrets
from libs.sealing import KEY_REF, Sealing
from libs.vault import Vault
from tests.support.api import SEALING_KEY, World, world
from tests.support.postgres import Database

TOKEN = "tracker-token-of-dana-4711"


@pytest.fixture
async def api(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        yield made


async def give(api: World, *, by: str, status: int = 201, headers: Any = (), **body: Any) -> Any:
    answer = await api.call(
        "POST", "/grants", by=by, json={"server": "tracker", "token": TOKEN, **body}, headers=headers
    )
    assert answer.status_code == status, answer.text
    assert TOKEN not in answer.text
    return answer.json()


async def robot(api: World) -> UUID:
    body = {"email": "robot@example.com", "kind": "service_user"}
    answer = await api.call("POST", "/users", json=body)
    assert answer.status_code == 201, answer.text
    return UUID(answer.json()["user_id"])


async def kept(api: World, grant_id: str) -> list[UUID]:
    rows = await api.tools.require_pool().fetch(
        "select secret_id from grant_secrets where grant_id = $1", UUID(grant_id)
    )
    return [row["secret_id"] for row in rows]


async def test_a_grant_is_given_listed_and_revoked_by_whose_it_is(api: World) -> None:
    given = await give(api, by="dana", expires_at="2099-01-01T00:00:00Z")
    assert (given["user"], given["server"], given["state"]) == ("dana@example.com", "tracker", "active")
    assert given["given_by"]["name"] == "dana@example.com"
    assert (await api.get("/grants", by="dana"))["items"] == [given]
    assert (await api.get("/grants", by="admin"))["items"] == [given]
    for stranger in ("priya", "outsider"):
        assert (await api.get("/grants", by=stranger))["items"] == []
        gone = await api.call("DELETE", f"/grants/{given['grant_id']}", by=stranger)
        assert (gone.status_code, gone.json()["code"]) == (404, "grant.not_found")
    revoked = await api.call("DELETE", f"/grants/{given['grant_id']}", by="dana")
    assert (revoked.status_code, revoked.json()["state"]) == (200, "revoked")
    assert await kept(api, given["grant_id"]) == []
    again = await api.call("DELETE", f"/grants/{given['grant_id']}", by="dana")
    assert (again.status_code, again.json()["state"]) == (200, "revoked")


async def test_the_secret_is_sealed_and_opens_for_its_grant_alone(api: World) -> None:
    given = await give(api, by="dana")
    grant_id = UUID(given["grant_id"])
    (secret_id,) = await kept(api, given["grant_id"])
    vault = Vault(api.tools.require_pool(), Sealing(Secrets(overrides={KEY_REF: SEALING_KEY})))
    assert await vault.open(api.place.tenant_group, grant_id, secret_id) == TOKEN
    assert await vault.open(api.elsewhere.tenant_group, grant_id, secret_id) is None
    assert await vault.open(api.place.tenant_group, uuid4(), secret_id) is None
    for table in ("grant_secrets", "workflow_history", "identity_heads", "blobs"):
        rows = await api.tools.require_pool().fetch(f"select t::text as text from {table} t")
        assert not any(TOKEN in row["text"] or TOKEN.encode().hex() in row["text"] for row in rows), table


async def test_another_token_takes_the_place_and_the_first_is_deleted(api: World) -> None:
    given = await give(api, by="dana")
    (first,) = await kept(api, given["grant_id"])
    await give(api, by="dana", token="another-token")
    (second,) = await kept(api, given["grant_id"])
    assert first != second
    history = (await api.store.events("identity", [UUID(given["grant_id"])], tenant_group=api.place.tenant_group))[
        UUID(given["grant_id"])
    ]
    assert [fact.type for fact in history] == ["identity.grant_given", "identity.grant_given"]


async def test_many_at_once_leave_one_secret_which_is_the_one_that_counts(api: World) -> None:
    answers = await asyncio.gather(*(give(api, by="dana", token=f"token-{n}") for n in range(8)))
    grant_id = answers[0]["grant_id"]
    await give(api, by="dana", token="the last")
    (secret_id,) = await kept(api, grant_id)
    vault = Vault(api.tools.require_pool(), Sealing(Secrets(overrides={KEY_REF: SEALING_KEY})))
    assert await vault.open(api.place.tenant_group, UUID(grant_id), secret_id) == "the last"


async def test_a_repeated_request_is_one_grant_and_undoes_no_revocation(api: World) -> None:
    once = {"idempotency-key": "k1"}
    given = await give(api, by="dana", headers=once)
    assert await give(api, by="dana", headers=once) == given
    await api.call("DELETE", f"/grants/{given['grant_id']}", by="dana")
    assert (await give(api, by="dana", headers=once))["state"] == "revoked"
    assert await kept(api, given["grant_id"]) == []


async def test_an_administrator_gives_a_service_user_a_grant_and_nobody_a_persons(api: World) -> None:
    await robot(api)
    given = await give(api, by="admin", user="robot@example.com")
    assert (given["user"], given["given_by"]["name"]) == ("robot@example.com", "admin@example.com")
    assert (await give(api, by="admin", status=403, user="dana@example.com"))["code"] == "grant.not_yours"
    assert (await give(api, by="dana", status=403, user="robot@example.com"))["code"] == "grant.not_yours"
    # What is given in somebody's name only they can give; that it ends is also an administrator's affair.
    own = await give(api, by="dana")
    assert (await api.call("DELETE", f"/grants/{own['grant_id']}", by="admin")).status_code == 200
    key = await api.identity.mint_key(api.place, name="ci", roles=["platform_admin"])
    assert (await give(api, by=key.secret, status=422))["code"] == "grant.no_user"
    assert (await give(api, by=key.secret, user="robot@example.com"))["given_by"]["kind"] == "api_key"


@pytest.mark.parametrize(
    "body, status, code",
    [
        ({"server": "nowhere"}, 404, "server.not_found"),
        ({"user": "nobody@example.com"}, 404, "user.not_found"),
        ({"user": "olga@elsewhere.example"}, 404, "user.not_found"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, 422, "grant.invalid"),
        ({"token": ""}, 422, "request.invalid"),
        ({"token": f"{TOKEN}\nwith a second line"}, 422, "request.invalid"),
        ({"token": f"ü{TOKEN}"}, 422, "request.invalid"),
        ({"token": TOKEN * 1_000}, 422, "request.invalid"),
        ({"token": {"is": TOKEN}}, 422, "request.invalid"),
        ({"secret": TOKEN}, 422, "request.invalid"),
    ],
)
async def test_what_cannot_be_given_is_refused_without_saying_the_token(
    api: World, body: dict[str, Any], status: int, code: str
) -> None:
    assert (await give(api, by="dana", status=status, **body))["code"] == code
    assert (await api.get("/grants", by="dana"))["items"] == []


async def test_without_a_sealing_key_it_says_how_to_make_one(api: World, database: Database) -> None:
    api.tools.secrets._overrides.pop(KEY_REF)
    problem = await give(api, by="dana", status=503)
    assert problem["code"] == "sealing.no_key"
    assert "minutebook provision --sealing-key" in problem["detail"]


async def test_who_leaves_takes_their_grants_and_tokens_along(api: World) -> None:
    given = await give(api, by="dana")
    left = await api.call("POST", f"/users/{api.users['dana']}/deactivate", json={})
    assert (left.status_code, left.json()["state"]) == (200, "inactive")
    assert [item["state"] for item in (await api.get("/grants"))["items"]] == ["revoked"]
    assert await kept(api, given["grant_id"]) == []
    assert (await api.call("POST", f"/users/{api.users['dana']}/deactivate", json={})).status_code == 200
    user_id = await robot(api)
    await api.call("POST", f"/users/{user_id}/deactivate", json={})
    assert (await give(api, by="admin", status=409, user="robot@example.com"))["code"] == "grant.user_inactive"


async def test_users_are_listed_registered_and_ended_by_administrators(api: World) -> None:
    listed = await api.get("/users", params={"limit": 2})
    rest = await api.get("/users", params={"limit": 50, "cursor": listed["next_cursor"]})
    emails = [item["email"] for item in (*listed["items"], *rest["items"])]
    assert emails == [f"{name}@example.com" for name in ("admin", "dana", "gus", "priya")]
    body = {"email": "mira@example.com", "name": "Mira", "roles": ["developer"], "projects": ["core", "new"]}
    made = (await api.call("POST", "/users", json=body)).json()
    assert (made["projects"], made["state"], made["kind"]) == (["core", "new"], "active", "user")
    assert (await api.call("POST", "/users", json=body)).json() == made
    other = await api.call("POST", "/users", json={**body, "roles": []})
    assert (other.status_code, other.json()["code"]) == (409, "identity.taken")
    ended = await api.call("POST", f"/users/{made['user_id']}/deactivate", json={})
    assert ended.json() == {**made, "state": "inactive"}
    again = await api.call("POST", "/users", json=body)
    assert again.status_code == 409
    myself = await api.call("POST", f"/users/{api.users['admin']}/deactivate", json={})
    assert (myself.status_code, myself.json()["code"]) == (409, "user.self")


@pytest.mark.parametrize("caller, status", [("dana", 403), ("outsider", 404)])
async def test_nobody_else_manages_people(api: World, caller: str, status: int) -> None:
    user = f"/users/{api.users['priya']}"
    for method, path in (("POST", f"{user}/deactivate"), ("GET", f"{user}/history")):
        assert (await api.call(method, path, by=caller)).status_code == status, path
    if status == 403:
        assert (await api.call("GET", "/users", by=caller)).status_code == 403
        assert (await api.call("POST", "/users", by=caller, json={"email": "x@y.z"})).status_code == 403
    assert (await api.call("GET", "/me", by="priya")).status_code == 200


async def test_a_change_leaves_who_made_it_and_what_it_was_before_and_after(api: World) -> None:
    priya = api.users["priya"]
    await api.call("POST", f"/users/{priya}/deactivate", json={})
    first, last = (await api.get(f"/users/{priya}/history"))["items"]
    assert (first["type"], first["before"], first["actor"]["name"]) == ("identity.user_registered", None, "api")
    assert (last["type"], last["actor"]["name"]) == ("identity.user_deactivated", "admin@example.com")
    assert (last["before"]["status"], last["after"]["status"]) == ("active", "inactive")
    assert last["before"] == first["after"]
    assert last["after"]["roles"] == ["project_manager"]
    assert "admin@example.com" in last["text"]
    absent = await api.call("GET", f"/users/{ids.grant(api.place.tenant_group, priya, 'x')}/history")
    assert absent.status_code == 404


async def test_a_token_limited_to_runs_gives_no_grant(api: World) -> None:
    key = await api.identity.mint_key(api.place, name="narrow", user_id=api.users["dana"], scopes=["runs", "read"])
    assert (await give(api, by=key.secret, status=403))["code"] == "auth.scope"
    assert json.dumps(await api.get("/grants", by=key.secret)) == '{"items": [], "next_cursor": null}'
