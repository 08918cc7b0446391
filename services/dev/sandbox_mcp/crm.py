"""A CRM: records."""

from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel
from starlette.requests import Request

from services.dev.sandbox_mcp.book import Book
from services.dev.sandbox_mcp.box import Sandbox
from services.dev.sandbox_mcp.calls import act, read


class Record(BaseModel):
    """The structured result of a CRM's tool."""

    id: str
    success: bool


def add_crm(server: MCPServer, box: Sandbox, book: Book) -> None:
    @server.tool(description="Create a record in the CRM. The sandbox writes it down, and nothing else happens.")
    async def create_record(sobject: str, fields: dict[str, Any], context: Context[Any, Request]) -> Record:
        number, _ = await act(box, book, "create_record", context)
        return Record(id=_record_id(number), success=True)

    @server.tool(description="Find the records of a kind that have these values.")
    async def find_records(
        sobject: str, fields: dict[str, Any], context: Context[Any, Request]
    ) -> list[dict[str, Any]]:
        await read(box, "find_records", context)
        return [
            {"id": _record_id(line["number"]), "fields": line["arguments"]["fields"]}
            for line in book.lines()
            if line["tool"] == "create_record"
            and line["arguments"]["sobject"] == sobject
            and fields.items() <= line["arguments"]["fields"].items()
        ]


def _record_id(number: int) -> str:
    return f"SB{number:015d}"
