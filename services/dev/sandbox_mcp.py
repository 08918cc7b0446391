"""Targets to write to: a real MCP server whose pull requests, CRM records and issues are lines of a file.

Each call that acted is one JSON line, synced before it is answered: `{at, tool, arguments, meta, number, by}`, where
`by` says whose token it bore. So what was written to the outside world can be counted after any kill. It does not
deduplicate, as real servers do not: a second call with the same idempotency key is a second line, and a fault of the
caller.

How a target fails can be rehearsed: `GET` and `PUT /faults`, a JSON list, with the server's token.
"""

import asyncio
import fcntl
import hmac
import html
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from libs.telemetry.logs import get_logger

_PATH: Final = "/mcp"
_FAULTS_PATH: Final = "/faults"
_CUT: Final = "minutebook.sandbox.cut"
_GARBAGE: Final = b"<!doctype html><title>502 Bad Gateway</title>"
_BY: Final = "minutebook.sandbox.by"
SERVER: Final = "the server's own token"

_log = get_logger("dev.sandbox")


class PullRequest(BaseModel):
    """The tool's structured result."""

    number: int
    html_url: str
    title: str
    head: str
    base: str


class Branch(BaseModel):
    ref: str


class ListedPullRequest(BaseModel):
    """A pull request as a list shows it."""

    number: int
    html_url: str
    title: str
    head: Branch
    base: Branch


class Comment(BaseModel):
    """The structured result of a tool that comments."""

    id: str
    html_url: str


class Record(BaseModel):
    """The structured result of a CRM's tool."""

    id: str
    success: bool


class Issue(BaseModel):
    """The structured result of an issue tracker's tool."""

    id: str
    key: str
    self: str


class IssueFields(BaseModel):
    summary: str
    description: str


class FoundIssue(BaseModel):
    id: str
    key: str
    fields: IssueFields


class FoundIssues(BaseModel):
    """The structured result of a search for issues."""

    issues: list[FoundIssue]


@dataclass(slots=True)
class Fault:
    """Something that befalls the calls to come, `times` of them, of these `tools`; of those that write where none is.

    `error`: the tool says that it failed. `hang`: no answer ever comes. `drop`: the connection is cut in its answer.
    `garbage`: the answer is a page of something else.
    With `acted` the record was made nevertheless, before that. `away`: nobody is let in, however often they come.
    """

    kind: Literal["error", "hang", "drop", "garbage", "away"]
    acted: bool = False
    times: int = 1
    tools: tuple[str, ...] = ()

    def befalls(self, tool: str, *, writes: bool) -> bool:
        return self.times > 0 and (tool in self.tools if self.tools else writes)


_FAULTS: Final = TypeAdapter(list[Fault])


@dataclass(slots=True)
class Sandbox:
    """The server: serve `app`, whose MCP endpoint is `/mcp`. `faults` and `delay_seconds` may change at any time.

    Faults are used up in their order, one per call that they befall, but for `away`, which lasts until taken out;
    `delay_seconds` passes before any call acts.
    """

    file: Path
    app: ASGIApp = field(init=False)
    faults: list[Fault] = field(default_factory=list)
    delay_seconds: float = 0.0

    def calls(self) -> list[dict[str, Any]]:
        """Return every call that acted, in the order of their numbers."""
        return _Book(self.file).lines()

    @property
    def away(self) -> bool:
        """Whether nobody is let in now."""
        return any(fault.kind == "away" for fault in self.faults)

    def next_fault(self, tool: str, *, writes: bool) -> Fault | None:
        """Use up one turn of the first fault that befalls a tool; None when the call is to go well."""
        self.faults[:] = [fault for fault in self.faults if fault.times > 0]
        fault = next((fault for fault in self.faults if fault.befalls(tool, writes=writes)), None)
        if fault is not None:
            fault.times -= 1
        return fault


def sandbox(file: Path, *, token: str | None = None, grants: Mapping[str, str] | None = None) -> Sandbox:
    """Make the sandbox that writes to `file`; numbering goes on from what the file holds.

    With `token`, a call gets 401 that bears neither that token nor one of `grants`, which are by whose they are.
    """
    box = Sandbox(file)
    tokens = None if token is None else {SERVER: token, **(grants or {})}
    box.app = _front(_server(box).streamable_http_app(stateless_http=True), box, tokens)
    return box


def _server(box: Sandbox) -> MCPServer:
    server = MCPServer("minutebook-sandbox", log_level="ERROR")
    book = _Book(box.file)
    _code_host(server, box, book)
    _crm(server, box, book)
    _issue_tracker(server, box, book)

    @server.custom_route(_FAULTS_PATH, methods=["GET", "PUT"])  # type: ignore[untyped-decorator]
    async def faults(request: Request) -> Response:
        if request.method == "PUT":
            try:
                box.faults[:] = _FAULTS.validate_json(await request.body())
            except ValidationError as error:
                return JSONResponse({"error": str(error)}, 422)
        return JSONResponse(_FAULTS.dump_python(box.faults, mode="json"))

    return server


def _code_host(server: MCPServer, box: Sandbox, book: "_Book") -> None:
    @server.tool(description="Open a pull request. The sandbox writes it down, and nothing else happens.")
    async def create_pull_request(
        repo: str,
        title: str,
        head: str,
        context: Context[Any, Request],
        body: str = "",
        owner: str = "",
        base: str = "main",
        draft: bool = False,
    ) -> PullRequest:
        number, origin = await _act(box, book, "create_pull_request", context)
        name = f"{owner}/{repo}" if owner else repo
        return PullRequest(number=number, html_url=f"{origin}{name}/pull/{number}", title=title, head=head, base=base)

    @server.tool(description="List the pull requests of a repository; of one head branch where `head` names it.")
    async def list_pull_requests(
        repo: str, context: Context[Any, Request], owner: str = "", head: str = "", state: str = "all"
    ) -> list[ListedPullRequest]:
        origin = await _read(box, "list_pull_requests", context)
        name = f"{owner}/{repo}" if owner else repo
        return [
            ListedPullRequest(
                number=line["number"],
                html_url=f"{origin}{name}/pull/{line['number']}",
                title=line["arguments"]["title"],
                head=Branch(ref=line["arguments"]["head"]),
                base=Branch(ref=line["arguments"].get("base", "main")),
            )
            for line in book.lines()
            if line["tool"] == "create_pull_request"
            and (line["arguments"]["repo"], line["arguments"].get("owner", "")) == (repo, owner)
            and head in ("", line["arguments"]["head"])
        ]

    @server.tool(description="Comment on an issue or a pull request. The sandbox writes it down.")
    async def add_issue_comment(
        repo: str, issue_number: int, body: str, context: Context[Any, Request], owner: str = ""
    ) -> Comment:
        number, origin = await _act(box, book, "add_issue_comment", context)
        name = f"{owner}/{repo}" if owner else repo
        return Comment(id=str(number), html_url=f"{origin}{name}/pull/{issue_number}#{number}")

    @server.custom_route("/{repo:path}/pull/{number:int}", methods=["GET"])  # type: ignore[untyped-decorator]
    async def page(request: Request) -> Response:
        number = request.path_params["number"]
        opened = (line for line in book.lines() if line["tool"] == "create_pull_request")
        found = [line for line in opened if line["number"] == number]
        return _page(found[0]) if found else HTMLResponse("There is no such pull request.", status_code=404)


def _crm(server: MCPServer, box: Sandbox, book: "_Book") -> None:
    @server.tool(description="Create a record in the CRM. The sandbox writes it down, and nothing else happens.")
    async def create_record(sobject: str, fields: dict[str, Any], context: Context[Any, Request]) -> Record:
        number, _ = await _act(box, book, "create_record", context)
        return Record(id=_record_id(number), success=True)

    @server.tool(description="Find the records of a kind that have these values.")
    async def find_records(
        sobject: str, fields: dict[str, Any], context: Context[Any, Request]
    ) -> list[dict[str, Any]]:
        await _read(box, "find_records", context)
        return [
            {"id": _record_id(line["number"]), "fields": line["arguments"]["fields"]}
            for line in book.lines()
            if line["tool"] == "create_record"
            and line["arguments"]["sobject"] == sobject
            and fields.items() <= line["arguments"]["fields"].items()
        ]


def _issue_tracker(server: MCPServer, box: Sandbox, book: "_Book") -> None:
    @server.tool(
        name="createJiraIssue", description="File an issue. The sandbox writes it down, and nothing else happens."
    )
    async def create_jira_issue(
        projectKey: str,  # noqa: N803  the tool's own names
        issueTypeName: str,  # noqa: N803
        summary: str,
        context: Context[Any, Request],
        description: str = "",
    ) -> Issue:
        number, origin = await _act(box, book, "createJiraIssue", context)
        return Issue(id=str(number), key=f"{projectKey}-{number}", self=f"{origin}browse/{projectKey}-{number}")

    @server.tool(
        name="searchJiraIssuesUsingJql",
        description="Search issues. The sandbox understands the words of JQL that are in double quotes, and wants all.",
    )
    async def search_issues(jql: str, context: Context[Any, Request]) -> FoundIssues:
        await _read(box, "searchJiraIssuesUsingJql", context)
        words = re.findall(r'"([^"]+)"', jql)
        return FoundIssues(
            issues=[
                FoundIssue(
                    id=str(line["number"]),
                    key=f"{line['arguments']['projectKey']}-{line['number']}",
                    fields=IssueFields(
                        summary=line["arguments"]["summary"], description=line["arguments"].get("description", "")
                    ),
                )
                for line in book.lines()
                if line["tool"] == "createJiraIssue" and all(word in json.dumps(line["arguments"]) for word in words)
            ]
        )

    @server.tool(name="addCommentToJiraIssue", description="Comment on an issue. The sandbox writes it down.")
    async def add_comment(
        issueIdOrKey: str,  # noqa: N803
        commentBody: str,  # noqa: N803
        context: Context[Any, Request],
    ) -> Comment:
        number, origin = await _act(box, book, "addCommentToJiraIssue", context)
        return Comment(id=str(number), html_url=f"{origin}browse/{issueIdOrKey}#{number}")


def _record_id(number: int) -> str:
    return f"SB{number:015d}"


async def _read(box: Sandbox, tool: str, context: Context[Any, Request]) -> str:
    """Answer a question, unless a fault befalls it; returns the server's address. Nothing is written down."""
    request = context.request_context.request
    assert request is not None
    await asyncio.sleep(box.delay_seconds)
    fault = box.next_fault(tool, writes=False)
    if fault is not None:
        await _befall(fault, request)
    return str(request.base_url)


async def _act(box: Sandbox, book: "_Book", tool: str, context: Context[Any, Request]) -> tuple[int, str]:
    """Write a call down, unless a fault befalls it; returns its number and the server's address."""
    received = context.request_context
    assert received.request is not None
    await asyncio.sleep(box.delay_seconds)
    fault = box.next_fault(tool, writes=True)
    if fault is not None and not fault.acted:
        await _befall(fault, received.request)
    arguments = dict((received.params or {}).get("arguments") or {})
    by = received.request.scope.get(_BY)
    number = await asyncio.to_thread(book.add, tool, arguments, dict(received.meta or {}), by)
    if fault is not None:
        await _befall(fault, received.request)
    return number, str(received.request.base_url)


async def _befall(fault: Fault, request: Request) -> None:
    if fault.kind == "error":
        raise ToolError("the sandbox was told to fail this call")
    if fault.kind in ("drop", "garbage"):
        request.scope[_CUT].set_result(fault.kind)
    await asyncio.Event().wait()  # until the caller, the front or the server's end cancels it


def _page(line: dict[str, Any]) -> HTMLResponse:
    arguments = line["arguments"]
    title, body, head = (html.escape(str(arguments.get(key, ""))) for key in ("title", "body", "head"))
    return HTMLResponse(
        f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title} #{line['number']}</h1>"
        f"<p>From <code>{head}</code>, written down by the sandbox at {html.escape(line['at'])}. "
        f"No code host was called.</p><pre>{body}</pre>"
    )


def _front(app: ASGIApp, box: Sandbox, tokens: Mapping[str, str] | None) -> ASGIApp:
    """Check the token and note whose it is, turn calls away, and cut the connection where a fault asks for it."""

    async def front(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in (_PATH, _FAULTS_PATH):
            await app(scope, receive, send)
            return
        scope[_BY] = _bearer(scope, tokens) if tokens is not None else None
        if tokens is not None and scope[_BY] is None:
            refusal = JSONResponse({"error": "invalid_token"}, 401, headers={"www-authenticate": "Bearer"})
            await refusal(scope, receive, send)
        elif scope["path"] == _FAULTS_PATH:
            await app(scope, receive, send)
        elif box.away:
            await JSONResponse({"error": "away"}, 429, headers={"retry-after": "1"})(scope, receive, send)
        else:
            asked = await _whole(receive)
            if asked is None:
                _log.info("a caller went away in the middle of its call")
                return
            scope[_CUT] = asyncio.get_running_loop().create_future()
            await _unless_cut(scope[_CUT], lambda: app(scope, asked, send), send)

    return front


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


class _Book:
    """The file of calls. Any number of processes may add to it; a line that a kill tore was never answered."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read_to = 0
        self._count = 0

    def add(self, tool: str, arguments: dict[str, Any], meta: dict[str, Any], by: str | None) -> int:
        """Append a call and return its number, counted from 1, once it is on the disk."""
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            stream.seek(self._read_to)
            added = stream.read()
            whole = added.rfind(b"\n") + 1
            stream.truncate(self._read_to + whole)
            stream.seek(self._read_to + whole)
            number = self._count + added.count(b"\n") + 1
            at = datetime.now(UTC).isoformat()
            line = {"at": at, "tool": tool, "arguments": arguments, "meta": meta, "number": number, "by": by}
            stream.write(json.dumps(line).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
            self._read_to, self._count = stream.tell(), number
        return number

    def lines(self) -> list[dict[str, Any]]:
        try:
            content = self._file.read_bytes()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in content.splitlines(keepends=True) if line.endswith(b"\n")]


__all__ = ["Fault", "Issue", "PullRequest", "Record", "Sandbox", "sandbox"]
