"""The outbound MCP client against servers that are started as commands, and its lists of tools."""

import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from starlette.types import Receive, Scope, Send

from contracts.errors import Unavailable
from libs.mcp import (
    Answered,
    Http,
    NotSent,
    Outcome,
    Stdio,
    ToolError,
    Unknown,
    call_tool,
    list_tools,
)
from services.dev.http import RunningHttp, serve
from services.dev.sandbox_mcp import sandbox
from tests.support.record import eventually

SERVER = """
import os, sys, time
from mcp.server.mcpserver import MCPServer
server = MCPServer("pipes", log_level="ERROR")
MARK = sys.argv[1]

@server.tool()
def act(text: str) -> dict[str, str]:
    open(MARK, "a").write(text)
    return {"text": text, "secret": os.environ.get("TOKEN", ""), "mine": os.environ.get("ONLY_OURS", "")}

@server.tool()
def fail() -> str:
    raise ValueError("no")

@server.tool()
def die() -> str:
    open(MARK, "a").write("died")
    os._exit(3)

@server.tool()
def hang() -> str:
    open(MARK, "a").write("hung")
    time.sleep(600)

server.run("stdio")
"""


@pytest.fixture
def command(tmp_path: Path) -> tuple[str, ...]:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    return (sys.executable, str(script), str(tmp_path / "mark"))


async def call(command: tuple[str, ...], tool: str, *, timeout: float = 20, **arguments: str) -> Outcome:
    return await call_tool(
        Stdio(command, {"TOKEN": "s3cret"}),
        tool=tool,
        arguments={**arguments},
        meta={},
        timeout=timedelta(seconds=timeout),
    )


async def test_a_command_is_started_called_and_ended_and_sees_no_more_than_it_was_given(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONLY_OURS", "x")
    assert await call(command, "act", text="a") == Answered({"text": "a", "secret": "s3cret", "mine": ""})
    assert not _alive(command)


async def test_endings_of_calls_over_pipes(command: tuple[str, ...]) -> None:
    assert isinstance(await call(command, "fail"), ToolError)
    assert isinstance(await call(command, "die"), Unknown)
    assert isinstance(await call(("/nowhere/at-all",), "act"), NotSent)
    assert isinstance(await call((sys.executable, "-c", "raise SystemExit(1)"), "act"), NotSent)


async def test_a_process_that_hangs_is_ended_with_its_call(command: tuple[str, ...]) -> None:
    assert isinstance(await call(command, "hang", timeout=3), Unknown)
    assert _marks(command) == "hung"

    async def gone() -> bool:
        return not _alive(command)

    await eventually(gone)


def _marks(command: tuple[str, ...]) -> str:
    return Path(command[2]).read_text()


def _alive(command: tuple[str, ...]) -> bool:
    return any(command[1] in (process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))


@pytest_asyncio.fixture
async def target(tmp_path: Path) -> AsyncIterator[RunningHttp]:
    server = await serve(sandbox(tmp_path / "calls.jsonl", token="t").app)
    yield server
    await server.stop()


async def test_tools_are_listed_with_the_schemas_of_their_arguments(
    target: RunningHttp, command: tuple[str, ...]
) -> None:
    found = await list_tools(Http(f"{target.url}/mcp", "t"), timeout=timedelta(seconds=10))
    assert "title" in found["create_pull_request"]["properties"]  # type: ignore[operator]
    over_pipes = await list_tools(Stdio(command), timeout=timedelta(seconds=20))
    assert set(over_pipes) == {"act", "fail", "die", "hang"}


@pytest.mark.parametrize(
    "address", [Http("http://127.0.0.1:9/mcp"), Stdio(("/nowhere/at-all",))], ids=["http", "stdio"]
)
async def test_a_server_that_cannot_be_reached_lists_nothing(address: Http | Stdio) -> None:
    with pytest.raises(Unavailable) as caught:
        await list_tools(address, timeout=timedelta(seconds=5))
    assert caught.value.code == "server.unreachable"


async def test_a_call_whose_time_is_over_before_it_is_sent_is_not_sent(tmp_path: Path) -> None:
    """As in a process that was frozen in its handshake: what the loop finds ready first must not matter."""
    box = sandbox(tmp_path / "calls.jsonl")

    stalls = iter([0.5])

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            # Stands for the frozen process: the client's loop is this one.
            time.sleep(next(stalls, 0))  # noqa: ASYNC251
        await box.app(scope, receive, send)

    server = await serve(slow)
    try:
        outcome = await call_tool(
            Http(f"{server.url}/mcp"),
            tool="create_pull_request",
            arguments={"repo": "r", "title": "t", "head": "h"},
            meta={},
            timeout=timedelta(seconds=0.3),
        )
    finally:
        await server.stop()
    assert isinstance(outcome, NotSent)
    assert box.calls() == []
