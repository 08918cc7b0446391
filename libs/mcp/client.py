"""One tool call, with an outcome that never claims more than is known.

The library re-sends nothing by itself on the path used here: no input rounds, no second try after a header mismatch,
no listing of tools after the answer. Its traps, and what is done about each: a server that dies in mid-call shows as
a cancellation that nobody asked for, so the conversation has a task of its own; the real error comes out of
`__aexit__`, so the `try` is outside the `async with`; several error codes are the library's own invention for an
answer that it could not read, so a code alone proves no refusal (`_SURELY_REFUSED`); and a task that is cancelled from
outside leaves the process behind that it talks to, so a conversation is ended by a scope of its own.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, cast

import anyio
import httpx2
import mcp_types
from mcp import MCPError

from contracts.base import JsonObject, JsonValue
from contracts.errors import Malformed
from libs import canonical
from libs.clock import monotonic
from libs.mcp.leaves import leaves
from libs.mcp.transports import Address, Stdio, connected

_TEXT_BYTES_MAX: Final = 4 << 20
_MESSAGE_CHARS_MAX: Final = 4_000
_UNWIND: Final = timedelta(seconds=6)
"""How long hanging up may take: a process over pipes is asked to end before it is ended."""

_SURELY_REFUSED: Final = frozenset(
    {
        mcp_types.INVALID_PARAMS,
        mcp_types.METHOD_NOT_FOUND,
        mcp_types.HEADER_MISMATCH,
        mcp_types.UNSUPPORTED_PROTOCOL_VERSION,
    }
)
"""Codes that say the tool was never entered. Internal errors and lost connections say no such thing."""

_REFUSING_STATUSES: Final = frozenset({400, 401, 403, 404, 405, 406, 411, 413, 414, 415, 421, 422, 429, 431})
"""HTTP statuses by which the request was turned away at the door. 5xx, 408 and 409 may come from behind it."""

_BUSY_STATUSES: Final = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Answered:
    """The tool did it. `content` is its structured content, else its text (parsed when it is JSON), else its blocks."""

    content: JsonValue


@dataclass(frozen=True, slots=True)
class ToolError:
    """The tool ran and says that it failed; an unknown tool and bad arguments are told this way too."""

    message: str


@dataclass(frozen=True, slots=True)
class RejectedByServer:
    """The server turned the call away before any tool ran. `code` is the JSON-RPC code, or the HTTP status."""

    code: int
    message: str


@dataclass(frozen=True, slots=True)
class NotSent:
    """No byte of the call left: it may be made again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The call may have been done, and nothing here can tell. It must not be made again unasked."""

    reason: str


Outcome = Answered | ToolError | RejectedByServer | NotSent | Unknown


@dataclass(slots=True)
class _Progress:
    """How far a conversation came. `outcome` stands as soon as it is known, whatever happens while hanging up."""

    until: float
    sent: bool = False
    status: int | None = None
    outcome: Outcome | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def leave(self) -> None:
        """The call leaves now, unless its time is over: this process may have been frozen in its handshake.

        Raises:
            _TooLateError: nothing was sent, and nothing may be.
        """
        if monotonic() >= self.until:
            raise _TooLateError("the call's time was over before it was sent")
        self.sent, self.status = True, None

    def lost(self, reason: str) -> Outcome:
        if self.outcome is not None:
            return self.outcome
        return Unknown(reason) if self.sent else NotSent(reason)


class _TooLateError(Exception):
    pass


async def call_tool(
    server: Address,
    *,
    tool: str,
    arguments: JsonObject,
    meta: Mapping[str, JsonValue],
    timeout: timedelta,
) -> Outcome:
    """Call a tool once, over a connection of its own, and return what is known of it within `timeout`.

    `meta` is the request's `_meta`, where an idempotency key and the trace context travel. Nothing is sent once
    `timeout` is over. Raises nothing but the caller's own cancellation, after which the call is as good as `Unknown`.
    """
    progress = _Progress(until=monotonic() + timeout.total_seconds())
    talk = asyncio.create_task(
        _converse(progress, server, tool=tool, arguments=arguments, meta=meta, timeout=timeout),
        name=f"mcp call {tool}",
    )
    try:
        await asyncio.wait({talk}, timeout=timeout.total_seconds())
        if talk.done():
            return talk.result()
        return progress.lost(f"no answer within {timeout.total_seconds():g} s")
    finally:
        if not talk.done():
            progress.scope.cancel()
            await asyncio.wait({talk}, timeout=_UNWIND.total_seconds())


async def _converse(
    progress: _Progress,
    server: Address,
    *,
    tool: str,
    arguments: JsonObject,
    meta: Mapping[str, JsonValue],
    timeout: timedelta,
) -> Outcome:
    """Connect, call, hang up. Every ending is an outcome, being cancelled included: the caller decides about that."""

    async def leaving(request: httpx2.Request) -> None:
        if _is_call(request):
            progress.leave()

    async def answered(response: httpx2.Response) -> None:
        # Of the handshake any answer matters; afterwards the one to the call, and not one to a notification.
        if response.request.method == "POST" and (not progress.sent or _is_call(response.request)):
            progress.status = response.status_code

    request = mcp_types.CallToolRequest(
        params=mcp_types.CallToolRequestParams(
            name=tool, arguments=dict(arguments), _meta=cast("mcp_types.RequestParamsMeta", dict(meta))
        )
    )
    with progress.scope:
        try:
            async with connected(server, timeout=timeout, leaving=leaving, answered=answered) as client:
                if isinstance(server, Stdio):
                    progress.leave()
                # Not `client.call_tool`: it may send twice, and lists the tools once more when the work is done.
                result = await client.session.send_request(request, mcp_types.CallToolResult)
                progress.outcome = _read(result)
                return progress.outcome
        except (Exception, BaseExceptionGroup, asyncio.CancelledError) as error:
            return _ending(progress, error)
    return progress.lost("the call was given up")


def _is_call(request: httpx2.Request) -> bool:
    return request.method == "POST" and b"tools/call" in request.content


def _read(result: mcp_types.CallToolResult) -> Outcome:
    texts = [block.text for block in result.content if isinstance(block, mcp_types.TextContent)]
    if result.is_error:
        return ToolError("\n".join(texts)[:_MESSAGE_CHARS_MAX] or "the tool failed and gave no reason")
    if result.structured_content is not None:
        return Answered(_keepable(result.structured_content))
    if len(texts) == len(result.content) == 1:
        return Answered(_parsed(texts[0]))
    return Answered(_keepable([block.model_dump(mode="json", by_alias=True) for block in result.content]))


def _parsed(text: str) -> JsonValue:
    try:
        return canonical.parse(text.encode(errors="replace"), what="the tool's text", bytes_max=_TEXT_BYTES_MAX)
    except Malformed:
        return _keepable(text)


def _keepable(value: object) -> JsonValue:
    """The value, or its JSON as plain text when it could not be kept as it is (NaN, NUL, half a character, depth).

    The work is done by now: an answer that is odd must not turn into an error.
    """
    try:
        return canonical.parse(canonical.canonical(value), what="the tool's answer", bytes_max=_TEXT_BYTES_MAX)
    except Malformed:
        return json.dumps(value)[:_TEXT_BYTES_MAX]


def _ending(progress: _Progress, error: BaseException) -> Outcome:
    """Judge what a conversation ended with: a refusal only where the call was surely turned away."""
    if progress.outcome is not None:
        return progress.outcome
    found = leaves(error)
    if len(found) == 1 and isinstance(found[0], MCPError):
        return _refused(progress, found[0])
    reasons = {f"{type(leaf).__name__}: {leaf}".rstrip(": ") for leaf in found}
    return progress.lost("; ".join(sorted(reasons))[:_MESSAGE_CHARS_MAX])


def _refused(progress: _Progress, error: MCPError) -> Outcome:
    message = error.message[:_MESSAGE_CHARS_MAX]
    status = progress.status
    if status in _BUSY_STATUSES and not progress.sent:
        return NotSent(f"the server answered HTTP {status}: {message}")
    if progress.sent and error.code in _SURELY_REFUSED:
        return RejectedByServer(error.code, message)
    if status in _REFUSING_STATUSES:
        return RejectedByServer(status, f"{message} (HTTP {status})")
    return progress.lost(f"{message} (code {error.code})")


__all__ = ["Answered", "NotSent", "Outcome", "RejectedByServer", "ToolError", "Unknown", "call_tool"]
