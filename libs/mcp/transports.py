"""How a server is reached: over streamable HTTP, or as a process of its own that is spoken to over its pipes."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TextIO

import httpx2
import mcp_types
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


@dataclass(frozen=True, slots=True)
class Http:
    """An endpoint. `token` goes as a bearer token. Holds a secret: never logged."""

    url: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Stdio:
    """A command that is started for one conversation and ended with it. `env` may hold secrets: never logged.

    Beside `env` it sees where its user's home is and where programs are, and nothing else of this process. What it
    says on standard error is dropped.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


Address = Http | Stdio

Leaving = Callable[[httpx2.Request], Awaitable[None]]
Answered = Callable[[httpx2.Response], Awaitable[None]]


@asynccontextmanager
async def connected(
    address: Address, *, timeout: timedelta, leaving: Leaving | None = None, answered: Answered | None = None
) -> AsyncIterator[Client]:
    """A conversation with the server, its handshake done. Over HTTP each request and each response is shown first."""
    info = mcp_types.Implementation(name="minutebook", version="1")
    match address:
        case Http(url, token):
            async with (
                httpx2.AsyncClient(
                    headers={"Authorization": f"Bearer {token}"} if token else None,
                    timeout=timeout.total_seconds(),
                    event_hooks={
                        "request": [leaving] if leaving else [],
                        "response": [answered] if answered else [],
                    },
                ) as http,
                Client(streamable_http_client(url, http_client=http), client_info=info, cache=None) as client,
            ):
                yield client
        case Stdio(command, env):
            server = StdioServerParameters(command=command[0], args=[*command[1:]], env=dict(env))
            with _nowhere() as nowhere:
                async with Client(stdio_client(server, errlog=nowhere), client_info=info, cache=None) as client:
                    yield client


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w")
