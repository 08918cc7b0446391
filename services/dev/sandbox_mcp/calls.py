"""What becomes of a call: it is written down or only answered, and a fault may befall it."""

import asyncio
from typing import Any, Final

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from starlette.requests import Request

from services.dev.sandbox_mcp.book import Book
from services.dev.sandbox_mcp.box import Fault, Sandbox

BY: Final = "minutebook.sandbox.by"
"""Where the request says whose token it bears."""

CUT: Final = "minutebook.sandbox.cut"
"""Where the request has what to tell when its answer is to be spoilt."""


async def read(box: Sandbox, tool: str, context: Context[Any, Request]) -> str:
    """Answer a question, unless a fault befalls it; returns the server's address. Nothing is written down."""
    request = context.request_context.request
    assert request is not None
    await asyncio.sleep(box.delay_seconds)
    fault = box.next_fault(tool, writes=False)
    if fault is not None:
        await _befall(fault, request)
    return str(request.base_url)


async def act(box: Sandbox, book: Book, tool: str, context: Context[Any, Request]) -> tuple[int, str]:
    """Write a call down, unless a fault befalls it; returns its number and the server's address."""
    received = context.request_context
    assert received.request is not None
    await asyncio.sleep(box.delay_seconds)
    fault = box.next_fault(tool, writes=True)
    if fault is not None and not fault.acted:
        await _befall(fault, received.request)
    arguments = dict((received.params or {}).get("arguments") or {})
    by = received.request.scope.get(BY)
    number = await asyncio.to_thread(book.add, tool, arguments, dict(received.meta or {}), by)
    if fault is not None:
        await _befall(fault, received.request)
    return number, str(received.request.base_url)


async def _befall(fault: Fault, request: Request) -> None:
    if fault.kind == "error":
        raise ToolError("the sandbox was told to fail this call")
    if fault.kind in ("drop", "garbage"):
        request.scope[CUT].set_result(fault.kind)
    await asyncio.Event().wait()  # until the caller, the front or the server's end cancels it
