"""The servers that a folder declares are asked for their tools, quickly, and those that do not answer are told."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from contracts.commands import InspectServers
from contracts.replies import Reply, ServersInspected
from libs.ids import mint
from tests.support.effects import World, open_world
from tests.support.postgres import Database
from tests.support.settling import operator

SERVERS = {
    "mcp/github.yaml": (
        "server: { id: github, transport: streamable_http, url_ref: github_mcp_url, token_ref: github_token,"
        " tools: { create_pull_request: {}, fly_to_the_moon: {} } }"
    ),
    "mcp/away.yaml": "server: { id: away, transport: streamable_http, url_ref: nowhere_url, tools: { t: {} } }",
    "mcp/untrusted.yaml": "server: { id: untrusted, transport: stdio, command: [/bin/sh], tools: { t: {} } }",
}


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(database, tmp_path) as world:
        yield world


async def test_what_servers_say_of_the_tools_that_are_named(world: World) -> None:
    _, bus = await world.service()
    command = InspectServers(
        command_id=mint(),
        deadline=await world.record.store.now() + timedelta(seconds=30),
        principal=operator(world),
        files=SERVERS,
    )
    data = await bus.ask(command.subject, command.model_dump_json().encode(), headers={}, timeout=timedelta(seconds=9))
    reply = Reply[ServersInspected].model_validate_json(data)
    assert reply.result is not None
    listings = reply.result.listings
    assert listings["github"].tools is not None
    assert set(listings["github"].tools) == {"create_pull_request"}
    assert "title" in str(listings["github"].tools["create_pull_request"])
    assert "nowhere_url" in (listings["away"].unreachable or "")
    assert "MINUTEBOOK_MCP_COMMANDS" in (listings["untrusted"].unreachable or "")
