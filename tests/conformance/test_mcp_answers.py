"""What the outbound MCP client makes of the answers of servers that are not the sandbox, over both protocol eras."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from mcp import MCPError
from mcp.server.mcpserver import MCPServer
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, ImageContent
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from libs.mcp import Answered, Http, NotSent, Outcome, RejectedByServer, Unknown, call_tool
from services.dev.http import RunningHttp, serve


def code_host() -> MCPServer:
    server = MCPServer("odd", log_level="CRITICAL")

    @server.tool(structured_output=False)
    def json_text() -> str:
        return '{"number": 7}'

    @server.tool(structured_output=False)
    def plain_text() -> str:
        return "done, see #7"

    @server.tool(structured_output=False)
    def odd_text() -> str:
        return '{"a": 1, "a": 2}'

    @server.tool(structured_output=False)
    def nul_text() -> str:
        return "a\x00b"

    @server.tool(structured_output=False)
    def picture() -> ImageContent:
        return ImageContent(type="image", data="aGk=", mime_type="image/png")

    @server.tool()
    def listed() -> list[int]:
        return [1, 2]

    @server.tool()
    def refuses() -> str:
        raise MCPError(INVALID_PARAMS, "no such repository")

    @server.tool()
    def breaks() -> str:
        raise MCPError(INTERNAL_ERROR, "something gave way")

    return server


def answering(app: ASGIApp, *, status: int, methods: set[str]) -> ASGIApp:
    """The app behind a gateway that answers some JSON-RPC methods itself, with a bare status."""

    async def gateway(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if json.loads(body)["method"] in methods:
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b"gateway"})
            return
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        await app(scope, replay, send)

    return gateway


async def call(server: RunningHttp, tool: str) -> Outcome:
    return await call_tool(Http(f"{server.url}/mcp"), tool=tool, arguments={}, meta={}, timeout=timedelta(seconds=10))


@pytest_asyncio.fixture(params=["modern", "handshake"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[RunningHttp]:
    """With `server/discover` answered 404, the client falls back to the handshake of earlier protocol versions."""
    app: ASGIApp = code_host().streamable_http_app(stateless_http=request.param == "modern")
    if request.param == "handshake":
        app = answering(app, status=404, methods={"server/discover"})
    running = await serve(app)
    yield running
    await running.stop()


@pytest.mark.parametrize(
    ("tool", "content"),
    [
        ("json_text", {"number": 7}),
        ("plain_text", "done, see #7"),
        ("odd_text", '{"a": 1, "a": 2}'),
        ("nul_text", '"a\\u0000b"'),
        ("listed", {"result": [1, 2]}),
    ],
)
async def test_content_is_structured_else_parsed_else_text(server: RunningHttp, tool: str, content: object) -> None:
    assert await call(server, tool) == Answered(content)  # type: ignore[arg-type]


async def test_other_content_is_its_blocks(server: RunningHttp) -> None:
    outcome = await call(server, "picture")
    assert isinstance(outcome, Answered)
    assert isinstance(outcome.content, list)
    assert isinstance(outcome.content[0], dict)
    assert outcome.content[0]["mimeType"] == "image/png"


async def test_refused_arguments_are_a_rejection_and_an_internal_error_tells_nothing(server: RunningHttp) -> None:
    assert await call(server, "refuses") == RejectedByServer(INVALID_PARAMS, "no such repository")
    assert isinstance(await call(server, "breaks"), Unknown)


@pytest.mark.parametrize(
    ("status", "expected"),
    [(403, RejectedByServer), (413, RejectedByServer), (408, Unknown), (409, Unknown), (500, Unknown), (502, Unknown)],
)
@pytest.mark.parametrize("stateless", [True, False])
async def test_a_bare_status_to_the_call_is_a_refusal_only_at_the_door(
    status: int, expected: type, stateless: bool
) -> None:
    app = code_host().streamable_http_app(stateless_http=stateless)
    server = await serve(answering(app, status=status, methods={"tools/call"}))
    assert isinstance(await call(server, "json_text"), expected)
    await server.stop()


@pytest.mark.parametrize(
    ("status", "expected"), [(401, RejectedByServer), (404, RejectedByServer), (429, NotSent), (503, NotSent)]
)
async def test_a_bare_status_to_the_handshake_means_that_nothing_was_sent(status: int, expected: type) -> None:
    handshake = {"server/discover", "initialize"}
    server = await serve(answering(code_host().streamable_http_app(), status=status, methods=handshake))
    assert isinstance(await call(server, "json_text"), expected)
    await server.stop()


@pytest.mark.parametrize("url", ["", "not an address", "ftp://example.com/mcp", "http://127.0.0.1:1/mcp"])
async def test_an_address_that_leads_nowhere_means_not_sent(url: str) -> None:
    outcome = await call_tool(Http(url, "t0ken"), tool="x", arguments={}, meta={}, timeout=timedelta(seconds=5))
    assert isinstance(outcome, NotSent)
    assert "t0ken" not in outcome.reason
