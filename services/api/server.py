"""The HTTP server inside the service's own life: it listens after the bus is there and stops before the bus does."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Generator

import uvicorn
from fastapi import FastAPI

from contracts.errors import Unavailable
from libs.process import Service, Tools
from libs.telemetry.logs import get_logger

_log = get_logger("api")


class _Server(uvicorn.Server):
    """Signals belong to the process, and this is only a part of it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class ApiService(Service):
    """The api with its HTTP server. `app` can also be called without one."""

    def __init__(self, tools: Tools, app: FastAPI) -> None:
        super().__init__("api", tools)
        self.app = app
        self._settings = tools.settings
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end. Known after `start`."""
        return self._url

    async def start(self) -> None:
        """Connect to the bus, then listen.

        Raises:
            contracts.errors.Unavailable: the port cannot be had, or the bus is not there.
        """
        listener = _listen(self._settings.http_host, self._settings.http_port)
        try:
            await super().start()
            await self._serve(listener)
        except BaseException:
            listener.close()
            raise

    async def stop(self) -> None:
        """Take no more requests, answer those in hand, then stop as every service does."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.wait({self._serving})
        await super().stop()

    async def _serve(self, listener: socket.socket) -> None:
        config = uvicorn.Config(
            self.app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=max(1, round(self._settings.drain_seconds)),
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]), name="api:http")
        while not self._server.started:
            if self._serving.done():
                raise Unavailable("api.not_started", "the HTTP server did not start; see its log")
            await asyncio.sleep(0.005)
        self._url = _url(self._settings.http_host, listener.getsockname()[1])
        _log.info("listening", url=self._url)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise Unavailable(
            "api.port_taken",
            f"the api cannot listen on {host} port {port} ({reason}); stop what listens there, or set "
            "MINUTEBOOK_HTTP_PORT to another port (0 takes a free one)",
        ) from error


def _url(host: str, port: int) -> str:
    """An address that a client on this machine can use."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host)  # noqa: S104  read, not bound
    return f"http://{reachable or (f'[{host}]' if ':' in host else host)}:{port}"
