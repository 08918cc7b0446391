"""An ASGI application served inside this process, on a port of its own."""

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn
from starlette.types import ASGIApp

from contracts.errors import Unavailable

_STOP_SECONDS = 2
_POLL_SECONDS = 0.005


class _Server(uvicorn.Server):
    """Signals belong to the process, and this is only a part of it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class RunningHttp:
    """A server that takes connections at `url` (no slash at the end)."""

    def __init__(self, url: str, server: uvicorn.Server, task: asyncio.Task[None]) -> None:
        self.url = url
        self._server = server
        self._task = task

    async def stop(self) -> None:
        """Take no more requests, give those in hand two seconds, end. Stopping twice is fine."""
        self._server.should_exit = True
        await asyncio.wait({self._task})

    async def abort(self) -> None:
        """End as a killed process does: every connection is cut where it is, nothing is answered."""
        for connection in list(self._server.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        self._server.force_exit = True
        await self.stop()


async def serve(app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> RunningHttp:
    """Serve `app` and return when it takes connections; port 0 means any free one. Installs no signal handlers.

    Raises:
        contracts.errors.Unavailable: the port is taken, or the application did not start.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise Unavailable("dev.port_taken", f"port {port} of {host} cannot be had: {error.strerror}") from error
    server = _Server(
        uvicorn.Config(
            app, log_config=None, log_level="warning", access_log=False, timeout_graceful_shutdown=_STOP_SECONDS
        )
    )
    url = f"http://{host}:{listener.getsockname()[1]}"
    task = asyncio.create_task(_run(server, listener, url), name=f"serve {url}")
    try:
        while not server.started:
            if task.done():
                await task
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
        raise Unavailable("dev.http_not_started", f"the application for {url} did not start; see its log") from None


__all__ = ["RunningHttp", "serve"]
