"""The outbound MCP client against the real sandbox over streamable HTTP: every ending, and what may be said of it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from libs.mcp import Answered, Http, NotSent, Outcome, RejectedByServer, ToolError, Unknown, call_tool
from services.dev.http import RunningHttp, serve
from services.dev.sandbox_mcp import Fault, Sandbox, sandbox

ARGUMENTS = {"owner": "acme", "repo": "shop", "title": "Add to basket", "head": "story-1", "body": "Small."}
META = {"minutebook/idempotency-key": "run-1:open_pr", "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}


@dataclass
class Target:
    """A served sandbox and a call to it."""

    box: Sandbox
    server: RunningHttp

    async def call(
        self, *, tool: str = "create_pull_request", token: str | None = "t0ken", timeout: float = 10
    ) -> Outcome:
        return await call_tool(
            Http(f"{self.server.url}/mcp", token),
            tool=tool,
            arguments=dict(ARGUMENTS),
            meta=META,
            timeout=timedelta(seconds=timeout),
        )


@pytest_asyncio.fixture
async def target(tmp_path: Path) -> AsyncIterator[Target]:
    box = sandbox(tmp_path / "calls.jsonl", token="t0ken")
    server = await serve(box.app)
    yield Target(box, server)
    await server.stop()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the file and the fault have no event to wait for
            await asyncio.sleep(0.01)


async def test_an_answer_is_structured_and_the_call_is_written_with_its_meta(target: Target) -> None:
    outcome = await target.call()
    assert outcome == Answered(
        {
            "number": 1,
            "html_url": f"{target.server.url}/acme/shop/pull/1",
            "title": "Add to basket",
            "head": "story-1",
            "base": "main",
        }
    )
    (line,) = target.box.calls()
    assert line["tool"] == "create_pull_request"
    assert line["arguments"] == ARGUMENTS
    assert META.items() <= line["meta"].items()


async def test_a_tool_that_raises_is_a_tool_error(target: Target) -> None:
    target.box.faults.append(Fault("error"))
    assert await target.call() == ToolError(
        "Error executing tool create_pull_request: the sandbox was told to fail this call"
    )
    assert target.box.calls() == []


async def test_an_unknown_tool_was_surely_not_run(target: Target) -> None:
    outcome = await target.call(tool="merge_everything")
    assert isinstance(outcome, ToolError | RejectedByServer)
    assert "merge_everything" in outcome.message


async def test_a_refused_token_is_a_rejection_at_the_door(target: Target) -> None:
    outcome = await target.call(token="wrong")
    assert isinstance(outcome, RejectedByServer)
    assert outcome.code == 401
    assert target.box.calls() == []


async def test_nobody_there_means_not_sent() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outcome = await call_tool(
        Http(f"http://127.0.0.1:{port}/mcp"),
        tool="create_pull_request",
        arguments={},
        meta={},
        timeout=timedelta(seconds=5),
    )
    assert isinstance(outcome, NotSent)
    assert "Connect" in outcome.reason


async def test_a_server_that_takes_the_connection_and_says_nothing_means_not_sent() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    outcome = await call_tool(
        Http(f"http://127.0.0.1:{port}/mcp"), tool="x", arguments={}, meta={}, timeout=timedelta(seconds=0.3)
    )
    assert isinstance(outcome, NotSent)
    server.close()


@pytest.mark.parametrize("acted", [False, True])
async def test_a_connection_cut_in_mid_call_is_unknown_whether_or_not_it_acted(target: Target, acted: bool) -> None:
    target.box.faults.append(Fault("drop", acted=acted))
    assert isinstance(await target.call(), Unknown)
    assert len(target.box.calls()) == acted


@pytest.mark.parametrize("acted", [False, True])
async def test_a_server_that_dies_in_mid_call_is_unknown_whether_or_not_it_acted(target: Target, acted: bool) -> None:
    hang = Fault("hang", acted=acted)
    target.box.faults.append(hang)
    calling = asyncio.create_task(target.call())
    await eventually(lambda: hang.times == 0 and len(target.box.calls()) == acted)
    await target.server.abort()
    assert isinstance(await calling, Unknown)
    assert len(target.box.calls()) == acted


@pytest.mark.parametrize("acted", [False, True])
async def test_a_call_that_hangs_is_unknown_at_its_timeout(target: Target, acted: bool) -> None:
    target.box.faults.append(Fault("hang", acted=acted))
    async with asyncio.timeout(5):
        outcome = await target.call(timeout=0.5)
    assert outcome == Unknown("no answer within 0.5 s")
    assert len(target.box.calls()) == acted


async def test_own_cancellation_passes_through(target: Target) -> None:
    hang = Fault("hang", acted=True)
    target.box.faults.append(hang)
    calling = asyncio.create_task(target.call())
    await eventually(lambda: len(target.box.calls()) == 1)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert calling.cancelled()


async def test_nothing_is_sent_twice_and_calls_do_not_share_a_fate(target: Target) -> None:
    target.box.faults.append(Fault("drop", acted=True))
    outcomes: list[Outcome] = [await target.call()]
    outcomes += await asyncio.gather(*(target.call() for _ in range(8)))
    assert isinstance(outcomes[0], Unknown)
    assert all(isinstance(outcome, Answered) for outcome in outcomes[1:])
    assert [line["number"] for line in target.box.calls()] == list(range(1, 10))
