"""An ASGI application served inside this process, which keeps its own signals, log and end."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Generator
from datetime import timedelta
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from contracts.errors import Unavailable
from libs.process.bounded import BoundedHttp

BACKLOG: Final = 2_048
KEEP_ALIVE_SECONDS: Final = 75
"""How long an idle connection stays open: longer than clients and proxies keep theirs (5 s, 60 s), so that it is they
who close it. Closed by the server, it may be closed under a request that is on its way, which nobody may repeat."""

_POLL_SECONDS: Final = 0.005
_ON_THIS_MACHINE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  read, not bound


class _Server(uvicorn.Server):
    """Signals belong to the process, and this is only a part of it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class RunningHttp:
    """A server that takes connections at `url` (no slash at the end), an address that this machine can use."""

    def __init__(self, url: str, server: uvicorn.Server, task: asyncio.Task[None]) -> None:
        self.url = url
        self._server = server
        self._task = task

    async def stop(self) -> None:
        """Take no more requests, answer those in hand within the drain time, end. Stopping twice is fine."""
        self._server.should_exit = True
        await asyncio.wait({self._task})

    async def abort(self) -> None:
        """End as a killed process does: nobody is let in any more, every connection is cut where it is."""
        for listening in self._server.servers:
            listening.close()  # first: who is cut off comes again at once
        for connection in list(self._server.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        self._server.force_exit = True
        await self.stop()


def listen(host: str, port: int) -> socket.socket:
    """Take a port, 0 for any free one. Connections queue until `serve` answers them.

    Raises:
        contracts.errors.Unavailable: ``http.port_taken``, it cannot be had; with the system's reason.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise Unavailable("http.port_taken", f"port {port} of {host} cannot be had: {reason}") from error


async def serve(app: ASGIApp, listener: socket.socket, *, drain: timedelta) -> RunningHttp:
    """Serve `app` on a port that `listen` took, and return when it answers. The listener is closed at the end.

    `drain` is how long requests in hand may take once it stops. Installs no signal handlers.

    Raises:
        contracts.errors.Unavailable: ``http.not_started``, the application's lifespan failed; its log says why.
    """
    config = uvicorn.Config(
        app,
        http=BoundedHttp,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(drain.total_seconds())),
    )
    server = _Server(config)
    url = url_of(*listener.getsockname()[:2])
    task = asyncio.create_task(_run(server, listener, url), name=f"serve {url}")
    try:
        while not server.started:
            if task.done():
                task.result()  # raises why
                raise Unavailable("http.not_started", f"the application for {url} ended before it answered")
            await asyncio.sleep(_POLL_SECONDS)
    except BaseException:
        task.cancel()
        raise
    return RunningHttp(url, server, task)


async def _run(server: uvicorn.Server, listener: socket.socket, url: str) -> None:
    try:
        with listener:
            await server.serve(sockets=[listener])
    except SystemExit:  # uvicorn would end the process, of which this is only a part
        raise Unavailable("http.not_started", f"the application for {url} did not start; see its log") from None


def url_of(host: str, port: int) -> str:
    """The URL under which this machine reaches what listens on an address, also on one that means all of them."""
    reachable = _ON_THIS_MACHINE.get(host, host)
    return f"http://{f'[{reachable}]' if ':' in reachable else reachable}:{port}"


__all__ = ["RunningHttp", "listen", "serve"]
