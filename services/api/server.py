"""The HTTP server inside the service's own life: it listens after the bus is there and stops before the bus does."""

import socket
from collections.abc import Sequence
from datetime import timedelta

from fastapi import FastAPI

from contracts.errors import Unavailable
from libs.process import Service, Tools, http
from libs.process.service import Duty
from libs.telemetry.logs import get_logger
from services.api.waiting import Waiting

_log = get_logger("api")


class ApiService(Service):
    """The api with its HTTP server. `app` can also be called without one; `waiting` are callers with time to wait."""

    def __init__(self, tools: Tools, app: FastAPI, waiting: Waiting, duties: Sequence[Duty] = ()) -> None:
        super().__init__("api", tools, duties=[waiting.looking, *duties])
        self.waiting = waiting
        self.app = app
        self._settings = tools.settings
        self._running: http.RunningHttp | None = None

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end. Empty before `start`."""
        return self._running.url if self._running is not None else ""

    async def start(self) -> None:
        """Connect to the bus, then answer.

        Raises:
            contracts.errors.Unavailable: the port cannot be had, or the bus is not there.
        """
        listener = self._listen()
        try:
            await super().start()
        except BaseException:
            listener.close()
            raise
        drain = timedelta(seconds=self._settings.drain_seconds)
        self._running = await http.serve(self.app, listener, drain=drain)
        _log.info("listening", url=self.url)

    async def stop(self) -> None:
        """Take no more requests, answer those in hand, then stop as every service does."""
        self.waiting.close()
        if self._running is not None:
            await self._running.stop()
        await super().stop()

    def _listen(self) -> socket.socket:
        """Take the port before anything else is connected, so that a second api says so at once."""
        try:
            return http.listen(self._settings.http_host, self._settings.http_port)
        except Unavailable as error:
            raise Unavailable(
                "api.port_taken",
                f"{error.message}; stop what listens there, or set MINUTEBOOK_HTTP_PORT to another port (0 takes a "
                "free one)",
            ) from error
