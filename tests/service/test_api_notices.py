"""Notices through the api: who sees which, sending again, failing sources, and the page that a link leads to."""

import hashlib
import hmac
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from typing import Any
from uuid import UUID, uuid4

import pytest
from fastapi.routing import APIRoute

from contracts import ids
from contracts.events.notice import NoticeFailed, NoticeRaised
from libs.domain import decision, notice
from libs.ids import mint
from minutebook.models.states import NoticeAbout
from services.api import reference
from services.api.routes import ROUTERS, pages
from services.api.routes.pages import CONTENT_SECURITY_POLICY
from services.effects.app import build as build_effects
from tests.support.api import WEBHOOK_SECRET, World, world
from tests.support.postgres import Database
from tests.support.record import Record

CHANNELS = """
channels:
  - { id: ops, kind: webhook, url_ref: nowhere, secret_ref: nothing, about: [source.failing] }
  - { id: chat, kind: slack, url_ref: nowhere, about: [] }
"""
DELIVERY = "/api/public/workflows/events/{source}"


@pytest.fixture
async def api(database: Database) -> AsyncIterator[World]:
    async with world(database, services=[build_effects], webhooks_refused_max=3) as made:
        yield made


async def raised(
    api: World,
    *,
    run_id: UUID | None,
    about: NoticeAbout = "decision.opened",
    failed: bool = True,
    channel: str = "ops",
) -> UUID:
    """A notice, given up unless it is still due."""
    notice_id, now = mint(), await api.store.now()
    events = [
        NoticeRaised(
            at=now,
            about=about,
            subject=uuid4(),
            run_id=run_id,
            channel_id=channel,
            recipient=None,
            title="A title",
            text="A text.",
        ),
        *([NoticeFailed(at=now, message="answered 410")] if failed else []),
    ]
    record = Record(api.database, api.tools.require_pool(), api.store, api.place.tenant_group, api.place.tenant)  # type: ignore[arg-type]  # the store is that of PostgreSQL
    await record.plant(notice.CATEGORY, notice_id, *events)
    return notice_id


async def test_who_sees_which_notices(api: World) -> None:
    run_id = await api.start()
    hidden = await api.start(key="CORE-2", project=None)
    mine = await raised(api, run_id=run_id)
    others = await raised(api, run_id=hidden)
    source = await raised(api, run_id=None, about="source.failing")

    async def seen(by: str, **query: Any) -> set[str]:
        found = await api.get("/notices", by=by, params=query)
        return {item["notice_id"] for item in found["items"]}

    assert await seen("admin") == {str(mine), str(others), str(source)}
    assert await seen("dana") == {str(mine), str(others)}
    assert await seen("priya") == {str(mine)}
    assert await seen("gus") == await seen("outsider") == set()
    assert await seen("admin", run=str(run_id)) == {str(mine)}
    assert await seen("priya", run=str(hidden)) == set()
    assert await seen("admin", state=["due", "sent"]) == await seen("admin", channel="chat") == set()
    [item] = (await api.get("/notices", by="priya"))["items"]
    assert (item["state"], item["message"], item["tries"], item["again_at"]) == ("failed", "answered 410", 0, None)


async def test_pages_hold_each_notice_once_newest_first(api: World) -> None:
    run_id = await api.start()
    made = [str(await raised(api, run_id=run_id)) for _ in range(5)]
    for by in ("admin", "dana"):
        found: list[str] = []
        cursor = None
        while True:
            page = await api.get("/notices", by=by, params={"limit": 2, **({"cursor": cursor} if cursor else {})})
            found += [item["notice_id"] for item in page["items"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert found == made[::-1]


async def test_an_administrator_sends_one_again(api: World) -> None:
    notice_id = await raised(api, run_id=await api.start())
    path = f"/notices/{notice_id}/retry"
    for by, status, code in (("dana", 403, "notice.not_yours"), ("outsider", 404, "notice.not_found")):
        refused = await api.call("POST", path, by=by)
        assert (refused.status_code, refused.json()["code"]) == (status, code)
    for _ in range(2):
        again = await api.call("POST", path, headers={"idempotency-key": "k"})
        assert (again.status_code, again.json()["state"]) == (200, "due"), "the same request is the same one"
    refused = await api.call("POST", path)
    assert (refused.status_code, refused.json()["code"]) == (409, "notice.not_over")


async def test_channels_are_synced_and_listed_by_administrators(api: World) -> None:
    synced = await api.call("PUT", "/definitions", json={"files": {"channels.yaml": CHANNELS}})
    assert [(thing["kind"], thing["id"], thing["changed"]) for thing in synced.json()["synced"]] == [
        ("channel", "ops", True),
        ("channel", "chat", True),
    ]
    first = await api.get("/channels", params={"limit": 1})
    assert [item["id"] for item in first["items"]] == ["chat"]
    second = await api.get("/channels", params={"limit": 1, "cursor": first["next_cursor"]})
    assert [(item["id"], item["about"], item["url_ref"]) for item in second["items"]] == [
        ("ops", ["source.failing"], "nowhere")
    ]
    assert (await api.call("GET", "/channels", by="dana")).status_code == 403


async def test_a_source_that_fails_again_and_again_is_told_of_once(api: World) -> None:
    await api.call("PUT", "/definitions", json={"files": {"channels.yaml": CHANNELS}})
    path = DELIVERY.format(source="jira")

    async def refuse(times: int) -> list[dict[str, Any]]:
        for _ in range(times):
            refused = await api.call("POST", path, by=None, json={}, headers={"x-hub-signature-256": "sha256=00"})
            assert refused.status_code == 401
        return list((await api.get("/notices"))["items"])

    assert await refuse(2) == []
    body = b'{"webhookEvent": "jira:issue_created", "issue": {"key": "CORE-1", "id": "1"}, "timestamp": 1}'
    signature = "sha256=" + hmac.new(WEBHOOK_SECRET.encode(), body, hashlib.sha256).hexdigest()
    taken = await api.call("POST", path, by=None, content=body, headers={"x-hub-signature-256": signature})
    assert taken.status_code == 202, taken.text
    assert await refuse(2) == [], "an authentic one ends the row"
    [told] = await refuse(1)
    assert (told["about"], told["subject"], told["run_id"]) == ("source.failing", str(ids.source("jira")), None)
    assert "3 deliveries of jira were refused" in told["text"]
    assert await refuse(7) == [told]


async def test_a_source_of_nobody_is_not_counted(api: World) -> None:
    for _ in range(5):
        assert (await api.call("POST", DELIVERY.format(source="made-up"), by=None, json={})).status_code == 404
    assert (await api.get("/notices"))["items"] == []


class _Tags(HTMLParser):
    """The tags of a page with their attributes, and the text inside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in {"script", "style"} and data.strip():
            self.inside.append(data)


async def test_the_page_of_a_decision_holds_nothing_and_takes_nothing_from_elsewhere(api: World) -> None:
    _, decision_id = await api.waiting()
    page = await api.http.get(f"/decisions/{decision_id}")
    assert page.status_code == 200
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert page.headers["referrer-policy"] == "no-referrer"
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert page.content == (await api.http.get(f"/decisions/{uuid4()}")).content, (
        "it says not even whether there is one"
    )
    assert "Draft of CORE-1" not in page.text
    parsed = _Tags()
    parsed.feed(page.text)
    assert parsed.inside == []
    for tag, attributes in parsed.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for name in ("src", "href", "action"):
            address = attributes.get(name)
            if address and not address.startswith("data:"):
                assert re.fullmatch(r"pages/decision\.(js|css)", address), address
                asset = await api.http.get(f"/decisions/{address}")
                assert asset.status_code == 200
                assert "://" not in asset.text
                for kept in ("localStorage", "sessionStorage", "cookie", "innerHTML", "eval("):
                    assert kept not in asset.text
    assert (await api.http.get("/decisions/pages/decision.html")).status_code == 404
    assert (await api.http.get("/decisions/not-an-id")).status_code == 404


async def test_a_get_of_any_route_decides_nothing(api: World) -> None:
    run_id, decision_id = await api.waiting()
    pool = api.tools.require_pool()
    before = await pool.fetchval("select count(*) from workflow_history")
    values = {
        "run_id": run_id,
        "decision_id": decision_id,
        "step": "draft",
        "definition_id": "story",
        "outcome": "approve",
    }
    walked = set()
    for router in (*ROUTERS, reference.router, pages.router):
        for route in router.routes:
            assert isinstance(route, APIRoute)
            if "GET" not in (route.methods or ()):
                continue
            path = re.sub(r"\{(\w+)\}", lambda found: str(values.get(found[1], uuid4())), route.path)
            for by in ("priya", "admin"):
                headers = {"authorization": f"Bearer {api.tokens[by]}"}
                answered = await api.http.get(path, headers=headers, params={"outcome": "approve"})
                assert answered.status_code < 500, path
            walked.add(route.path)
    approving = f"/api/public/admin/workflows/decisions/{decision_id}/approve"
    assert (await api.call("GET", approving, by="priya")).status_code in {404, 405}
    assert {"/decisions/{decision_id}", "/api/public/admin/workflows/decisions/{decision_id}"} <= walked
    assert await pool.fetchval("select count(*) from workflow_history") == before
    loaded = await api.store.load(decision.CATEGORY.name, {decision_id: 0})
    assert decision.CATEGORY.fold(tuple(r.event for r in loaded.streams[decision_id].events)).status == "open"
