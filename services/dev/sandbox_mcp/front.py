"""Who is let in to the server, and what they hear where a fault spoils the answer."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from libs.telemetry.logs import get_logger
from services.dev.sandbox_mcp.box import Sandbox
from services.dev.sandbox_mcp.calls import BY, CUT

_PATH: Final = "/mcp"
FAULTS_PATH: Final = "/faults"
_GARBAGE: Final = b"<!doctype html><title>502 Bad Gateway</title>"

_log = get_logger("dev.sandbox")


def front(app: ASGIApp, box: Sandbox, tokens: Mapping[str, str] | None) -> ASGIApp:
    """Check the token and note whose it is, turn calls away, and cut the connection where a fault asks for it."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in (_PATH, FAULTS_PATH):
            await app(scope, receive, send)
            return
        scope[BY] = _bearer(scope, tokens) if tokens is not None else None
        if tokens is not None and scope[BY] is None:
            refusal = JSONResponse({"error": "invalid_token"}, 401, headers={"www-authenticate": "Bearer"})
            await refusal(scope, receive, send)
        elif scope["path"] == FAULTS_PATH:
            await app(scope, receive, send)
        elif box.away:
            await JSONResponse({"error": "away"}, 429, headers={"retry-after": "1"})(scope, receive, send)
        else:
            asked = await _whole(receive)
            if asked is None:
                _log.info("a caller went away in the middle of its call")
                return
            scope[CUT] = asyncio.get_running_loop().create_future()
            await _unless_cut(scope[CUT], lambda: app(scope, asked, send), send)

    return answer


async def _whole(receive: Receive) -> Receive | None:
    """The request with its body read; None when the caller was gone before it had sent all, as one that was killed is.

    The library would tell that as an error of its own, with a traceback.
    """
    messages: list[Message] = []
    while not messages or messages[-1].get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        messages.append(message)
    before = iter(messages)

    async def again() -> Message:
        return next(before, None) or await receive()

    return again


async def _unless_cut(cut: asyncio.Future[str], answer: Callable[[], Awaitable[None]], send: Send) -> None:
    answering: asyncio.Future[None] = asyncio.ensure_future(answer())
    first: set[asyncio.Future[Any]] = {answering, cut}
    try:
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            await answering
            return
    finally:
        answering.cancel()
        await asyncio.wait({answering})
    if cut.result() == "garbage":
        content = [(b"content-type", b"application/json"), (b"content-length", str(len(_GARBAGE)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": content})
        await send({"type": "http.response.body", "body": _GARBAGE})
        return
    # The server closes a connection whose answer stays shorter than it was said to be.
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})
    await send({"type": "http.response.body", "body": b"{", "more_body": True})


def _bearer(scope: Scope, tokens: Mapping[str, str]) -> str | None:
    """Whose token the call bears."""
    given = dict(scope["headers"]).get(b"authorization", b"")
    found = [who for who, token in tokens.items() if hmac.compare_digest(given, f"Bearer {token}".encode())]
    return found[0] if found else None
