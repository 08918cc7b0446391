"""The sandbox as a record of what was written: numbers, kills, tokens, its page."""

import asyncio
import json
import logging
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from contracts.base import JsonObject
from libs.mcp import Answered, Http, NotSent, Outcome, RejectedByServer, call_tool
from services.dev.http import serve
from services.dev.sandbox_mcp import Fault, sandbox
from tests.support.record import eventually


async def open_pull_request(url: str, *, token: str | None = None, **more: str) -> Outcome:
    arguments: JsonObject = {"repo": "acme/shop", "title": "T", "body": "<b>", "head": "h", **more}
    return await call_tool(
        Http(f"{url}/mcp", token),
        tool="create_pull_request",
        arguments=arguments,
        meta={"minutebook/idempotency-key": "k"},
        timeout=timedelta(seconds=10),
    )


def number(outcome: Outcome) -> object:
    assert isinstance(outcome, Answered)
    assert isinstance(outcome.content, dict)
    return outcome.content["number"]


async def test_numbers_go_on_after_a_restart_and_a_torn_line_never_was(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    numbers = []
    for _ in range(2):
        server = await serve(sandbox(file).app)
        numbers += [number(await open_pull_request(server.url)) for _ in range(2)]
        await server.stop()
        with file.open("ab") as torn:
            torn.write(b'{"at": "2026-01-01T00:00:00Z", "tool": "cre')
    assert numbers == [1, 2, 3, 4]
    box = sandbox(file)
    assert [line["number"] for line in box.calls()] == [1, 2, 3, 4]
    assert set(box.calls()[0]) == {"at", "tool", "arguments", "meta", "number", "by"}
    assert all(json.loads(line) for line in file.read_text().splitlines()[:4])


async def test_two_sandboxes_on_one_file_never_give_a_number_twice(tmp_path: Path) -> None:
    servers = [await serve(sandbox(tmp_path / "calls.jsonl").app) for _ in range(2)]
    numbers = [number(await open_pull_request(server.url)) for server in servers * 2]
    assert numbers == [1, 2, 3, 4]
    for server in servers:
        await server.stop()


async def test_a_repeated_key_is_written_twice_as_real_servers_would(tmp_path: Path) -> None:
    box = sandbox(tmp_path / "calls.jsonl")
    server = await serve(box.app)
    for _ in range(2):
        await open_pull_request(server.url)
    assert [line["meta"]["minutebook/idempotency-key"] for line in box.calls()] == ["k", "k"]
    await server.stop()


async def test_the_address_of_a_pull_request_shows_it(tmp_path: Path) -> None:
    server = await serve(sandbox(tmp_path / "calls.jsonl", token="t").app)
    outcome = await open_pull_request(server.url, token="t", title="Fish & <chips>")
    assert isinstance(outcome, Answered)
    assert isinstance(outcome.content, dict)
    async with httpx.AsyncClient() as http:
        page = await http.get(str(outcome.content["html_url"]))
        missing = await http.get(f"{server.url}/acme/shop/pull/99")
    assert "Fish &amp; &lt;chips&gt; #1" in page.text
    assert "<pre>&lt;b&gt;</pre>" in page.text
    assert missing.status_code == 404
    await server.stop()


@pytest.mark.parametrize("token", [None, "", "wrong"])
async def test_without_the_token_nothing_is_written(tmp_path: Path, token: str | None) -> None:
    box = sandbox(tmp_path / "calls.jsonl", token="right")
    server = await serve(box.app)
    outcome = await open_pull_request(server.url, token=token)
    assert isinstance(outcome, RejectedByServer)
    assert outcome.code == 401
    assert box.calls() == []
    await server.stop()


async def test_faults_are_used_up_in_their_order(tmp_path: Path) -> None:
    box = sandbox(tmp_path / "calls.jsonl")
    box.faults += [Fault("error", times=2), Fault("error", acted=True)]
    server = await serve(box.app)
    outcomes = [await open_pull_request(server.url) for _ in range(4)]
    assert [type(outcome).__name__ for outcome in outcomes] == ["ToolError", "ToolError", "ToolError", "Answered"]
    assert [line["number"] for line in box.calls()] == [1, 2]
    await server.stop()


async def test_a_caller_that_is_killed_in_its_call_is_one_line_and_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    box = sandbox(tmp_path / "calls.jsonl")
    server = await serve(box.app)
    host, _, port = server.url.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = (
        "POST /mcp HTTP/1.1",
        f"host: {host}:{port}",
        "accept: application/json, text/event-stream",
        "content-type: application/json",
        "content-length: 1000",
    )
    with capture_logs() as logs:
        writer.write(("\r\n".join(head) + '\r\n\r\n{"jsonrpc": "2.0", ').encode())
        await writer.drain()
        writer.transport.abort()

        async def told() -> bool:
            return bool([log for log in logs if log["event"] == "a caller went away in the middle of its call"])

        await eventually(told)
        await server.stop()
    assert len(logs) == 1
    assert [record for record in caplog.records if record.exc_info or record.levelno >= logging.WARNING] == []
    assert box.calls() == []


@pytest.mark.parametrize(
    ("tool", "arguments", "reference"),
    [
        ("create_record", {"sobject": "Note", "fields": {"Title": "Fleet renewal"}}, {"id": "SB000000000000001"}),
        (
            "createJiraIssue",
            {"projectKey": "PMO", "issueTypeName": "Task", "summary": "Chase the yard"},
            {"id": "1", "key": "PMO-1"},
        ),
    ],
)
async def test_it_stands_for_a_crm_and_an_issue_tracker_too(
    tmp_path: Path, tool: str, arguments: JsonObject, reference: dict[str, str]
) -> None:
    box = sandbox(tmp_path / "calls.jsonl")
    server = await serve(box.app)
    outcome = await call_tool(
        Http(f"{server.url}/mcp"), tool=tool, arguments=arguments, meta={}, timeout=timedelta(seconds=10)
    )
    assert isinstance(outcome, Answered)
    assert isinstance(outcome.content, dict)
    assert reference.items() <= outcome.content.items()
    (line,) = box.calls()
    assert (line["tool"], line["arguments"]) == (tool, arguments)
    await server.stop()


async def test_a_target_that_is_away_is_rehearsed_over_http(tmp_path: Path) -> None:
    box = sandbox(tmp_path / "calls.jsonl", token="t")
    server = await serve(box.app)
    async with httpx.AsyncClient(base_url=server.url, headers={"authorization": "Bearer t"}) as http:
        assert (await http.put("/faults", json=[{"kind": "away"}])).status_code == 200
        assert (await http.get("/faults")).json() == [{"kind": "away", "acted": False, "times": 1, "tools": []}]
        turned_away = [await open_pull_request(server.url, token="t") for _ in range(2)]
        assert all(isinstance(outcome, NotSent) for outcome in turned_away), turned_away
        assert (await http.put("/faults", json=[{"kind": "on holiday"}])).status_code == 422
        assert (await http.put("/faults", json=[])).json() == []
        assert (await http.get("/faults", headers={"authorization": "Bearer guessed"})).status_code == 401
    assert number(await open_pull_request(server.url, token="t")) == 1
    await server.stop()
