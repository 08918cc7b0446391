"""What the servers that a folder declares say of their tools, so that a sync can tell before a run does."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from contracts.base import JsonObject
from contracts.commands import InspectServers, ServerListing
from contracts.errors import Rejected, Unavailable
from contracts.replies import ServersInspected
from libs.canonical import canonical
from libs.domain.access import is_administrator
from libs.domain.definition import server_synced
from libs.language.loader import load_folder
from libs.language.model import Server
from libs.mcp import Address, list_tools
from services.effects.connectors import Connectors

ANSWER_WITHIN: Final = timedelta(seconds=2.5)
"""Less than the api waits for one ask before it asks again."""

LISTING_BYTES_MAX: Final = 128 << 10
"""Of one server's listing: all of them go into one message."""

ListTools = Callable[..., Awaitable[Mapping[str, JsonObject]]]
"""Lists a server's tools, as `libs.mcp.list_tools` does."""


class Inspection:
    """Asks servers side by side; one that does not answer is told as such and holds nobody up for long."""

    def __init__(self, connectors: Connectors, *, list_: ListTools = list_tools) -> None:
        self._connectors = connectors
        self._list = list_

    async def inspect(self, ask: InspectServers) -> ServersInspected:
        """Return what each declared server says of the tools that are declared; nothing of files that have problems.

        Raises:
            contracts.errors.Rejected: ``definition.not_yours`` (403).
        """
        if not is_administrator(ask.principal):
            raise Rejected("definition.not_yours", "definitions are synced by administrators", status=403)
        files = {path: text for path, text in ask.files.items() if path.startswith("mcp/")}
        try:
            folder = await asyncio.to_thread(load_folder, files)
        except Rejected:
            return ServersInspected(listings={})  # the sync itself tells what is wrong
        listings = await asyncio.gather(*(self._listing(server, ask.deadline) for server in folder.servers))
        return ServersInspected(listings={server.id: one for server, one in zip(folder.servers, listings, strict=True)})

    async def _listing(self, server: Server, at: datetime) -> ServerListing:
        try:
            address: Address = self._connectors.address(server_synced(server, at))
            tools = await self._list(address, timeout=ANSWER_WITHIN)
        except Unavailable as error:
            return ServerListing(unreachable=error.message)
        named = _named(server)
        listing = ServerListing(tools={name: schema for name, schema in tools.items() if name in named})
        if len(canonical(listing.model_dump())) > LISTING_BYTES_MAX:
            return ServerListing(tools={name: {} for name in tools if name in named})
        return listing


def _named(server: Server) -> frozenset[str]:
    """Every tool that a declaration names: those of writes, of probes and of back-links."""
    asked = {tool.probe.tool for tool in server.tools if tool.probe is not None}
    linked = {tool.back_link.tool for tool in server.tools if tool.back_link is not None}
    return frozenset({*(tool.name for tool in server.tools), *asked, *linked})
