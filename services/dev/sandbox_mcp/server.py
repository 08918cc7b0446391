"""The MCP server: its tools, its front, and the route by which faults are told."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mcp.server.mcpserver import MCPServer
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from services.dev.sandbox_mcp.book import Book
from services.dev.sandbox_mcp.box import Fault, Sandbox
from services.dev.sandbox_mcp.code_host import add_code_host
from services.dev.sandbox_mcp.crm import add_crm
from services.dev.sandbox_mcp.front import FAULTS_PATH, front
from services.dev.sandbox_mcp.issue_tracker import add_issue_tracker

SERVER: Final = "the server's own token"
_FAULTS: Final = TypeAdapter(list[Fault])


def sandbox(file: Path, *, token: str | None = None, grants: Mapping[str, str] | None = None) -> Sandbox:
    """Make the sandbox that writes to `file`; numbering goes on from what the file holds.

    With `token`, a call gets 401 that bears neither that token nor one of `grants`, which are by whose they are.
    """
    box = Sandbox(file)
    tokens = None if token is None else {SERVER: token, **(grants or {})}
    box.app = front(_server(box).streamable_http_app(stateless_http=True), box, tokens)
    return box


def _server(box: Sandbox) -> MCPServer:
    server = MCPServer("minutebook-sandbox", log_level="ERROR")
    book = Book(box.file)
    add_code_host(server, box, book)
    add_crm(server, box, book)
    add_issue_tracker(server, box, book)

    @server.custom_route(FAULTS_PATH, methods=["GET", "PUT"])  # type: ignore[untyped-decorator]
    async def faults(request: Request) -> Response:
        if request.method == "PUT":
            try:
                box.faults[:] = _FAULTS.validate_json(await request.body())
            except ValidationError as error:
                return JSONResponse({"error": str(error)}, 422)
        return JSONResponse(_FAULTS.dump_python(box.faults, mode="json"))

    return server
