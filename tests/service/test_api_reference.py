"""The reference at /docs: everything that it needs comes from the api itself."""

import re
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.api import World, world
from tests.support.postgres import Database

HERE = httpx.URL("http://test/docs")
ADDRESSES = re.compile(r'(?:src|href)="([^"]*)"|url: "([^"]*)"')
ELSEWHERE = re.compile(r"url\((?!['\"]?data:)|@import", re.IGNORECASE)


@pytest.fixture
async def api(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        yield made


async def test_the_page_loads_only_what_the_api_serves(api: World) -> None:
    page, start = await api.http.get("/docs"), await api.http.get("/docs/start.js")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    found = [first or second for first, second in ADDRESSES.findall(page.text + start.text)]
    assert len(found) == 6
    for address in found:
        url = HERE.join(address)
        if url.scheme == "data":
            continue
        assert (url.scheme, url.host) == (HERE.scheme, HERE.host)
        answer = await api.http.get(url)
        assert answer.status_code == 200, address
        assert answer.content
    assert "//" not in page.text + start.text, "no address but those above"
    assert not ELSEWHERE.search((await api.http.get("/docs/swagger-ui.css")).text)


async def test_the_browser_is_told_to_ask_nobody_else(api: World) -> None:
    for path in ("/docs", "/docs/start.js", "/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js"):
        answer = await api.http.get(path)
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == "'self'", "no script inside the page, none from elsewhere, no eval"
        allowed = {source for sources in policy.values() for source in sources.split()}
        assert allowed == {"'none'", "'self'", "data:"}
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_nothing_else_of_the_package_is_served(api: World) -> None:
    for path in ("/docs/redoc.standalone.js", "/docs/..%2fcore.py", "/docs/", "/redoc"):
        assert (await api.http.get(path)).status_code == 404, path


async def test_the_description_is_the_one_that_the_page_shows(api: World) -> None:
    description = (await api.http.get("/openapi.json")).json()
    assert description["openapi"].startswith("3.1")
    assert not [path for path in description["paths"] if path.startswith("/docs")]
