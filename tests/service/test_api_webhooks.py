"""Webhooks: nothing is believed, what is stored is stored once, and the bus is not needed for it."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from contracts.commands import NoteDifferentBody
from contracts.envelope import InboundNotice
from contracts.errors import Conflict, refusal
from contracts.replies import BodyNoted, Reply
from tests.support.api import WEBHOOK_SECRET, World, world
from tests.support.postgres import Database
from tests.support.record import eventually

EVENTS = "/api/public/workflows/events"
JIRA: dict[str, Any] = {
    "webhookEvent": "jira:issue_updated",
    "timestamp": 1_772_400_000_000,
    "issue": {"id": "10042", "key": "CORE-142", "fields": {"summary": "Say why", "project": {"key": "CORE"}}},
    "changelog": {"id": "77", "items": [{"field": "status", "fromString": "Draft", "toString": "Ready"}]},
    "user": {"displayName": "Priya"},
}
GENERIC = {"event": "ticket.ready", "external_id": "4711", "keys": {"ticket": "T-1"}}


@pytest.fixture
async def api(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        yield made


async def deliver(
    api: World, body: bytes, *, signature: str | None = None, secret: str = WEBHOOK_SECRET
) -> httpx.Response:
    signed = signature or "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return await api.http.post(f"{EVENTS}/jira", content=body, headers={"x-hub-signature-256": signed})


async def stored(api: World) -> list[asyncpg.Record]:
    return list(await api.tools.require_pool().fetch("select * from deliveries order by received_at"))


async def test_a_signed_delivery_is_stored_once_and_ingest_is_told(api: World) -> None:
    body = json.dumps(JIRA).encode()
    first = await deliver(api, body)
    assert first.status_code == 202, first.text
    assert first.json()["status"] == "accepted"
    event_id = UUID(first.json()["event_id"])
    again = await deliver(api, body)
    assert (again.status_code, again.json()) == (200, {"status": "duplicate"})
    [row] = await stored(api)
    assert row["id"] == event_id
    assert row["tenant_group"] == api.place.tenant_group
    assert (row["event"], json.loads(row["keys"])["jira_key"]) == ("issue_transitioned", "CORE-142")
    assert row["body_sha256"] == hashlib.sha256(body).hexdigest()
    content = await api.store.blobs(api.place.tenant_group, [row["payload_digest"].hex()])
    assert json.loads(next(iter(content.values()))) == JIRA
    [notice] = [message for message in api.bus.published if message.subject == "inbound.jira"]
    assert InboundNotice.model_validate_json(notice.data).delivery_ids == (event_id,)


async def test_what_was_accepted_is_shown_before_it_is_recorded(api: World) -> None:
    accepted = await deliver(api, json.dumps(JIRA).encode())
    event_id = accepted.json()["event_id"]
    view = await api.get(f"/events/{event_id}")
    assert (view["state"], view["event"], view["routings"]) == ("received", "issue_transitioned", [])
    assert (view["payload"], view["keys"]["jira_key"]) == (JIRA, "CORE-142")
    assert (await api.call("GET", f"/events/{event_id}", by="outsider")).status_code == 404
    assert (await api.call("GET", f"/events/{event_id}", by="dana")).status_code == 403


async def test_fifty_redeliveries_at_once_are_one(api: World) -> None:
    body = json.dumps(JIRA).encode()
    answers = await asyncio.gather(*(deliver(api, body) for _ in range(50)))
    assert sorted(answer.status_code for answer in answers) == [200] * 49 + [202]
    assert len(await stored(api)) == 1


async def test_what_is_not_authentic_is_refused_and_stores_nothing(api: World) -> None:
    body = json.dumps(JIRA).encode()
    for signature in ("sha256=" + "0" * 64, "sha256=", "sha1=abc", "x"):
        refused = await deliver(api, body, signature=signature)
        assert (refused.status_code, refused.json()["code"]) == (401, "webhook.signature")
    assert (await deliver(api, body, secret="another")).status_code == 401
    unsigned = await api.http.post(f"{EVENTS}/jira", content=body)
    assert unsigned.status_code == 401
    with_token = await api.call("POST", f"{EVENTS}/jira", content=body)
    assert with_token.status_code == 401
    assert await stored(api) == []


async def test_the_signature_is_judged_before_the_body_is_read_as_anything(api: World) -> None:
    refused = await api.http.post(f"{EVENTS}/jira", content=b"not json", headers={"x-hub-signature-256": "sha256=00"})
    assert refused.status_code == 401
    for body in (b"not json", b'{"a": NaN}', b'{"a": 1, "a": 2}', b'"\\u0000"', b"[" * 100 + b"]" * 100, b"\xff", b""):
        answer = await deliver(api, body)
        assert answer.status_code == 400, body
        assert answer.headers["content-type"] == "application/problem+json"
    incomplete = await deliver(api, b'{"webhookEvent": "jira:issue_updated"}')
    assert incomplete.status_code == 422
    assert incomplete.json()["errors"]
    assert await stored(api) == []


async def test_a_source_that_nobody_declared_is_absent(api: World) -> None:
    for source in ("nobody", "story", "tracker", "JIRA", "a.b", "*"):
        answer = await api.http.post(f"{EVENTS}/{source}", json=GENERIC)
        assert (answer.status_code, answer.json()["code"]) == (404, "source.not_found")


async def test_a_source_without_a_secret_takes_a_token_of_its_group(api: World) -> None:
    assert (await api.http.post(f"{EVENTS}/open", json=GENERIC)).status_code == 401
    assert (await api.call("POST", f"{EVENTS}/open", by="outsider", json=GENERIC)).status_code == 404
    assert (await api.call("POST", f"{EVENTS}/open", by="gus", json=GENERIC)).status_code == 202
    reader = await api.identity.mint_key(api.place, name="reader", roles=[], scopes=["read"])
    assert (await api.call("POST", f"{EVENTS}/open", by=reader.secret, json=GENERIC)).status_code == 403
    assert len(await stored(api)) == 1


async def test_a_missing_secret_is_said_in_words(api: World) -> None:
    answer = await api.http.post(f"{EVENTS}/orphan", json=GENERIC)
    assert (answer.status_code, answer.json()["code"]) == (503, "secret.missing")
    assert "nobody_set_this" in answer.json()["detail"]


async def test_a_body_past_the_limit_is_not_read(api: World) -> None:
    bytes_max = api.tools.settings.webhook_bytes_max
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 65_536
            yield b" " * 65_536

    answer = await api.http.post(f"{EVENTS}/jira", content=endless())
    assert (answer.status_code, answer.json()["code"]) == (413, "body.too_large")
    assert read <= bytes_max + 10 * 65_536
    claimed = await api.http.post(f"{EVENTS}/jira", content=b"{}", headers={"content-length": str(bytes_max + 1)})
    assert claimed.status_code == 413


async def test_without_the_bus_webhooks_are_still_accepted(api: World) -> None:
    api.bus.away = True
    answer = await deliver(api, json.dumps(JIRA).encode())
    assert answer.status_code == 202
    assert len(await stored(api)) == 1


async def test_more_than_a_source_may_send_is_429_until_there_is_room(database: Database) -> None:
    async with world(database, webhooks_per_second_max=2, webhooks_burst_max=3) as api:
        bodies = [json.dumps({**JIRA, "timestamp": number}).encode() for number in range(6)]
        for _ in range(5):
            assert (await deliver(api, bodies[0], secret="another")).status_code == 401
        taken = [await deliver(api, body) for body in bodies[:4]]
        assert [answer.status_code for answer in taken] == [202, 202, 202, 429]
        assert (taken[-1].json()["code"], taken[-1].headers["retry-after"]) == ("webhook.rate", "1")
        assert (await api.call("POST", f"{EVENTS}/open", by="gus", json=GENERIC)).status_code == 202

        async def taken_again() -> bool:
            return (await deliver(api, bodies[3])).status_code == 202

        await eventually(taken_again)
        assert len(await stored(api)) == 5


async def test_another_body_under_the_same_id_is_noted_and_changes_nothing(api: World) -> None:
    asked: list[NoteDifferentBody] = []

    async def note(_subject: str, data: bytes, _headers: Mapping[str, str]) -> bytes:
        asked.append(NoteDifferentBody.model_validate_json(data))
        reply = Reply[BodyNoted](result=BodyNoted(inbound_id=asked[-1].inbound_id))
        return reply.model_dump_json().encode()

    api.bus.answer(NoteDifferentBody.subject, note)
    first, other = json.dumps(JIRA).encode(), json.dumps({**JIRA, "user": {"displayName": "Else"}}).encode()
    assert (await deliver(api, first)).status_code == 202
    assert (await deliver(api, first)).json() == {"status": "duplicate"}
    assert asked == []
    assert (await deliver(api, other)).json() == {"status": "duplicate"}
    [noted] = asked
    [row] = await stored(api)
    assert (noted.inbound_id, noted.body_sha256) == (row["id"], hashlib.sha256(other).hexdigest())
    assert (noted.principal.name, row["body_sha256"]) == ("signature of jira", hashlib.sha256(first).hexdigest())
    api.bus.away = True
    assert (await deliver(api, other)).json() == {"status": "duplicate"}


async def test_a_lost_race_to_note_another_body_is_no_answer_to_its_sender(api: World) -> None:
    """Other bodies may come by the dozen at once; to whoever sends one it is a duplicate, noted or not."""

    async def contended(_subject: str, _data: bytes, _headers: Mapping[str, str]) -> bytes:
        lost = Conflict("append.contended", "the stream was changed by others; send it again")
        return Reply[BodyNoted](problem=refusal(lost)).model_dump_json().encode()

    api.bus.answer(NoteDifferentBody.subject, contended)
    assert (await deliver(api, json.dumps(JIRA).encode())).status_code == 202
    answer = await deliver(api, json.dumps({**JIRA, "user": {"displayName": "Else"}}).encode())
    assert (answer.status_code, answer.json()) == (200, {"status": "duplicate"})
