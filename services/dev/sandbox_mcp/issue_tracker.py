"""An issue tracker: issues and their comments."""

import json
import re
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel
from starlette.requests import Request

from services.dev.sandbox_mcp.answers import Comment
from services.dev.sandbox_mcp.book import Book
from services.dev.sandbox_mcp.box import Sandbox
from services.dev.sandbox_mcp.calls import act, read


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


def add_issue_tracker(server: MCPServer, box: Sandbox, book: Book) -> None:
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
        number, origin = await act(box, book, "createJiraIssue", context)
        return Issue(id=str(number), key=f"{projectKey}-{number}", self=f"{origin}browse/{projectKey}-{number}")

    @server.tool(
        name="searchJiraIssuesUsingJql",
        description="Search issues. The sandbox understands the words of JQL that are in double quotes, and wants all.",
    )
    async def search_issues(jql: str, context: Context[Any, Request]) -> FoundIssues:
        await read(box, "searchJiraIssuesUsingJql", context)
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
        number, origin = await act(box, book, "addCommentToJiraIssue", context)
        return Comment(id=str(number), html_url=f"{origin}browse/{issueIdOrKey}#{number}")
