"""A code host: pull requests and their comments."""

import html
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from services.dev.sandbox_mcp.answers import Comment
from services.dev.sandbox_mcp.book import Book
from services.dev.sandbox_mcp.box import Sandbox
from services.dev.sandbox_mcp.calls import act, read


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


def add_code_host(server: MCPServer, box: Sandbox, book: Book) -> None:
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
        number, origin = await act(box, book, "create_pull_request", context)
        name = f"{owner}/{repo}" if owner else repo
        return PullRequest(number=number, html_url=f"{origin}{name}/pull/{number}", title=title, head=head, base=base)

    @server.tool(description="List the pull requests of a repository; of one head branch where `head` names it.")
    async def list_pull_requests(
        repo: str, context: Context[Any, Request], owner: str = "", head: str = "", state: str = "all"
    ) -> list[ListedPullRequest]:
        origin = await read(box, "list_pull_requests", context)
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
        number, origin = await act(box, book, "add_issue_comment", context)
        name = f"{owner}/{repo}" if owner else repo
        return Comment(id=str(number), html_url=f"{origin}{name}/pull/{issue_number}#{number}")

    @server.custom_route("/{repo:path}/pull/{number:int}", methods=["GET"])  # type: ignore[untyped-decorator]
    async def page(request: Request) -> Response:
        number = request.path_params["number"]
        opened = (line for line in book.lines() if line["tool"] == "create_pull_request")
        found = [line for line in opened if line["number"] == number]
        return _page(found[0]) if found else HTMLResponse("There is no such pull request.", status_code=404)


def _page(line: dict[str, Any]) -> HTMLResponse:
    arguments = line["arguments"]
    title, body, head = (html.escape(str(arguments.get(key, ""))) for key in ("title", "body", "head"))
    return HTMLResponse(
        f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title} #{line['number']}</h1>"
        f"<p>From <code>{head}</code>, written down by the sandbox at {html.escape(line['at'])}. "
        f"No code host was called.</p><pre>{body}</pre>"
    )
