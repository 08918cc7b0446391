"""What tools a server says that it has."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import anyio
import mcp_types

from contracts.base import JsonObject
from contracts.errors import Malformed, Unavailable
from libs import canonical
from libs.mcp.leaves import leaves
from libs.mcp.transports import Address, connected

PAGES_MAX: Final = 50
SCHEMA_BYTES_MAX: Final = 256 << 10
_REASON_CHARS_MAX: Final = 500


async def list_tools(server: Address, *, timeout: timedelta) -> Mapping[str, JsonObject]:
    """Return the server's tools: name → JSON Schema of the arguments; without one where that cannot be kept.

    Raises:
        contracts.errors.Unavailable: ``server.unreachable``, with the reason.
    """
    try:
        with anyio.fail_after(timeout.total_seconds()):
            return await _list(server, timeout)
    except TimeoutError:
        reason = f"no answer within {timeout.total_seconds():g} s"
    except (Exception, BaseExceptionGroup) as error:
        reason = "; ".join(sorted({f"{type(leaf).__name__}: {leaf}".rstrip(": ") for leaf in leaves(error)}))
    raise Unavailable("server.unreachable", reason[:_REASON_CHARS_MAX])


async def _list(server: Address, timeout: timedelta) -> Mapping[str, JsonObject]:
    tools: dict[str, JsonObject] = {}
    async with connected(server, timeout=timeout) as client:
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = await client.list_tools(cursor=cursor)
            tools |= {tool.name: _schema(tool) for tool in page.tools}
            cursor = page.next_cursor
            if cursor is None:
                break
    return tools


def _schema(tool: mcp_types.Tool) -> JsonObject:
    try:
        schema = canonical.parse(
            canonical.canonical(tool.input_schema), what="the tool's schema", bytes_max=SCHEMA_BYTES_MAX
        )
    except Malformed:
        return {}
    return schema if isinstance(schema, dict) else {}
