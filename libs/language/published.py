"""The language as JSON Schemas (2020-12) for editors, made of the tables that the loader reads."""

from typing import Final, Literal, get_args

from contracts.base import JsonObject
from libs.language.grammar import CHANNELS_FILE, SERVER_FILE, SOURCES_FILE, WORKFLOW_FILE
from libs.language.schemas import DIALECT

FileKind = Literal["workflow", "sources", "server", "channels"]
FILE_KINDS: Final = get_args(FileKind)

_FILES: Final = {
    "workflow": (WORKFLOW_FILE, "A workflow: workflows/<id>/workflow.yaml"),
    "sources": (SOURCES_FILE, "Event sources: sources.yaml"),
    "server": (SERVER_FILE, "An MCP server: mcp/<server>.yaml"),
    "channels": (CHANNELS_FILE, "Where notices go: channels.yaml"),
}


def published_schema(kind: FileKind) -> JsonObject:
    """The schema of a file: it takes whatever the loader takes, and refuses what a look at one key can refuse."""
    shape, title = _FILES[kind]
    return {"$schema": DIALECT, "title": title, **shape.schema}
