"""Services as one process: started in order, looked at on the ops port, drained within a time."""

import asyncio
import os
import signal
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from structlog.contextvars import bound_contextvars

from contracts.envelope import Owner as ServiceName
from contracts.errors import Rejected, Unavailable
from libs.config import Secrets, Settings
from libs.eventstore.eras import ENDED
from libs.process import Service, Tools, http
from libs.process.loop import settle
from libs.process.ops import ops_app
from libs.process.tools import open_tools
from libs.telemetry import metrics
from libs.telemetry.logs import get_logger
from minutebook.models.problem import ProblemItem
from services.host.roster import ANSWERING, BUILDERS

DRAINED: Final = 0
AT_ONCE: Final = 130
"""Exit codes: after a drain, though not all of it was done in time, and after a second signal."""

_OPS_DRAIN: Final = timedelta(seconds=1)

_log = get_logger("host")


async def serve(names: Sequence[ServiceName], settings: Settings, secrets: Secrets) -> None:
    """Run the services until a signal, then drain, and return when they have ended.

    When their time is over the process ends here, with code 0: what still hangs waits for a server that is away, and
    what it holds comes again.

    Raises:
        contracts.errors.Rejected: ``settings.invalid``, every setting that a service refuses.
        contracts.errors.Unavailable: a port, the database or the bus cannot be had, or the schema is another one; or,
            as ``era.ended``, the database was restored under the services.
    """
    signalled = _signals()
    host = Host(names, settings, secrets)
    starting = asyncio.create_task(host.start(), name="starting")
    waiting = asyncio.create_task(signalled.wait(), name="until a signal")
    watching = asyncio.create_task(host.outlived(starting), name="until the era ends")
    try:
        await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()  # raises why not
            await asyncio.wait({waiting, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                watching.result()
            _log.info("draining", services=list(names))
    finally:
        for task in (starting, waiting, watching):
            task.cancel()
        await asyncio.gather(starting, waiting, watching, return_exceptions=True)
        if not await host.stop() and signalled.is_set():
            os._exit(DRAINED)


class Host:
    """The services of a process and its ops port."""

    def __init__(self, names: Sequence[ServiceName], settings: Settings, secrets: Secrets) -> None:
        self._names = names
        self._settings = settings
        self._secrets = secrets
        self._services: list[Service] = []
        self._ops: http.RunningHttp | None = None
        self.ops_url = ""

    async def start(self) -> None:
        """Listen on the ops port at once, so that a start that takes long can be watched; then start each service."""
        listener = self._listen()
        self._ops = await http.serve(ops_app(lambda: self._services, metrics.render), listener, drain=_OPS_DRAIN)
        self.ops_url = self._ops.url
        self._services = await self._built()
        for service in self._services:
            # What a service starts inherits the context, so its log lines name it.
            with bound_contextvars(service=service.name):
                await service.start()
        settle()
        _log.info("listening", ops_url=self.ops_url, services=list(self._names), **self._api())

    async def outlived(self, starting: asyncio.Task[None]) -> None:
        """Wait until the database is restored under the services.

        Raises:
            contracts.errors.Unavailable: ``era.ended``, it was.
        """
        await asyncio.wait({starting})
        watches = [asyncio.create_task(service.outlived.wait()) for service in self._services]
        try:
            await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for watch in watches:
                watch.cancel()
        raise Unavailable(
            ENDED, "the database was restored, and these services know what it lost; they go on when started again"
        )

    async def stop(self) -> bool:
        """Drain the door and what works by itself, then what the door asks; says whether all ended in time."""
        ends = asyncio.get_running_loop().time() + self._settings.drain_seconds
        drained = True
        for answering in (False, True):
            stopping = {
                asyncio.create_task(self._stop(service), name=f"stop {service.name}")
                for service in self._services
                if (service.name in ANSWERING) is answering
            }
            if stopping:
                left = max(0.0, ends - asyncio.get_running_loop().time())
                _, late = await asyncio.wait(stopping, timeout=left)
                drained = drained and not late
        if not drained:
            _log.warning("not drained in time, what was in hand comes again", services=list(self._names))
        if self._ops is not None:
            await self._ops.stop()
        return drained

    async def _built(self) -> list[Service]:
        """Build all before any starts, so that everything that is wrong with the settings is said at once."""
        opened: list[Tools] = []
        built: list[Service] = []
        refused: list[ProblemItem] = []
        try:
            for name in self._names:
                tools = await open_tools(name, self._settings, self._secrets)
                opened.append(tools)
                try:
                    built.append(BUILDERS[name](tools))
                except Rejected as error:
                    refused.append(ProblemItem(path=name, message=error.message))
            if refused:
                named = "; ".join(f"{item.path}: {item.message}" for item in refused)
                raise Rejected("settings.invalid", named, errors=tuple(refused))
        except BaseException:
            for tools in opened:
                tools.terminate()
            raise
        return built

    @staticmethod
    async def _stop(service: Service) -> None:
        with bound_contextvars(service=service.name):
            await service.stop()

    def _api(self) -> dict[str, str]:
        """Where the api listens, when this process serves it."""
        urls = [url for service in self._services if (url := getattr(service, "url", ""))]
        return {"api_url": urls[0]} if urls else {}

    def _listen(self) -> socket.socket:
        try:
            return http.listen(self._settings.ops_host, self._settings.ops_port)
        except Unavailable as error:
            raise Unavailable(
                "ops.port_taken",
                f"{error.message}; stop what listens there, or set MINUTEBOOK_OPS_PORT to another port (0 takes a "
                "free one)",
            ) from error


def _signals() -> asyncio.Event:
    """An event that the first SIGTERM or SIGINT sets. The second ends the process where it stands."""
    signalled = asyncio.Event()

    def on_signal() -> None:
        if signalled.is_set():
            os._exit(AT_ONCE)
        signalled.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return signalled
