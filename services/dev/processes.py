"""Services as processes of their own: each is a child on ports that are chosen for it, and is started again.

Whether it is up is what its ops port says, not what it logs: how much is logged is the user's choice.
"""

import asyncio
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import httpx

from contracts.envelope import Owner as ServiceName
from contracts.errors import Unavailable
from libs.config.settings import variable
from libs.process.http import url_of
from minutebook.cli.session import Exit
from services.dev.children import Child, log_tail, start_child

START_TIMEOUT: Final = timedelta(seconds=60)
STOP_GRACE: Final = timedelta(seconds=15)
"""A little more than the default of MINUTEBOOK_DRAIN_SECONDS."""

PAUSE_SECONDS_MIN: Final = 0.2
PAUSE_SECONDS_MAX: Final = 10.0
"""A service that ends again and again is started again after pauses that double, up to this."""

LONG_SECONDS: Final = 30.0
"""One that ran this long begins with the short pause again."""

PORT_TRIES_MAX: Final = 3
"""Between the choice of a free port and its use somebody else may take it."""

_HOST: Final = "127.0.0.1"
_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Running:
    """A service's process that is up. `api_url` is empty for all but the api."""

    pid: int
    ops_url: str
    api_url: str


class Processes:
    """Keeps the processes of services up. `say` hears of each that ended by itself, `changed` of every new one.

    The api listens on `http_host` and `http_port`, 0 for a free one, and finds it again when it is started again.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        http_host: str,
        http_port: int,
        logs: Path,
        say: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self._environment = environment
        self._http_host = http_host
        self._http_port = http_port
        self._logs = logs
        self._say = say
        self._changed = changed
        self._children: dict[ServiceName, Child] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self.running: dict[ServiceName, Running] = {}

    @property
    def api_url(self) -> str:
        """Where the api listens; the same after a restart."""
        return self.running["api"].api_url

    async def start(self, names: Sequence[ServiceName]) -> None:
        """Start all at once and return when each is up.

        Raises:
            contracts.errors.Unavailable: one does not start; with the end of its log.
        """
        self._logs.mkdir(mode=0o700, exist_ok=True)
        await asyncio.gather(*(self._start(name) for name in names))
        self._keepers = [asyncio.create_task(self._keep(name), name=f"keep {name}") for name in names]

    async def stop(self) -> None:
        """Drain all at once, the door among them."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(child.stop(STOP_GRACE) for child in self._children.values()))

    async def _start(self, name: ServiceName) -> None:
        for _ in range(PORT_TRIES_MAX):
            ops_port, http_port = _free_port(), self._http_port or _free_port()
            ports = {variable("ops_host"): _HOST, variable("ops_port"): str(ops_port)}
            if name == "api":
                ports |= {variable("http_host"): self._http_host, variable("http_port"): str(http_port)}
            child = start_child(
                [sys.executable, "-m", "services.host", "serve", name],
                name=name,
                log=self._logs / f"{name}.log",
                env={**self._environment, **ports},
            )
            self._children[name] = child
            if await self._up(child, url_of(_HOST, ops_port)):
                break
            if child.returncode != Exit.UNREACHABLE:
                break
        if child.returncode is not None:
            raise self._not_started(name, f"ended {_how(child.returncode)}")
        api_url = ""
        if name == "api":
            self._http_port = http_port  # whoever knows the address must find it there again
            api_url = url_of(self._http_host, http_port)
        self.running[name] = Running(child.pid, url_of(_HOST, ops_port), api_url)

    async def _up(self, child: Child, ops_url: str) -> bool:
        """Wait until a process says that its service is started; false when it ended before.

        Raises:
            contracts.errors.Unavailable: it takes too long.
        """
        deadline = time.monotonic() + START_TIMEOUT.total_seconds()
        async with httpx.AsyncClient(timeout=START_TIMEOUT.total_seconds(), trust_env=False) as client:
            while child.returncode is None:
                if await _started(client, ops_url, child.name):
                    return True
                if time.monotonic() > deadline:
                    raise self._not_started(child.name, "did not start in time")
                await asyncio.sleep(_POLL_SECONDS)
        return False

    def _not_started(self, name: str, why: str) -> Unavailable:
        log = self._logs / f"{name}.log"
        return Unavailable("dev.service_not_started", f"{name} {why}. The end of {log}:\n{log_tail(log)}")

    async def _keep(self, name: ServiceName) -> None:
        pause = PAUSE_SECONDS_MIN
        while True:
            began = time.monotonic()
            code = await self._children[name].wait()
            if time.monotonic() - began > LONG_SECONDS:
                pause = PAUSE_SECONDS_MIN
            self._say(f"{name} ended {_how(code)}; it is started again")
            while True:
                await asyncio.sleep(pause)
                pause = min(pause * 2, PAUSE_SECONDS_MAX)
                try:
                    await self._start(name)
                except Unavailable as error:
                    self._say(error.message)
                    await self._children[name].stop()
                    continue
                break
            self._changed()


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"by {signal.Signals(-code).name}"
    return f"with status {code}"


async def _started(client: httpx.AsyncClient, ops_url: str, name: str) -> bool:
    """Whether the service that answers there is started, able to work or not."""
    try:
        services = (await client.get(f"{ops_url}/readyz")).json()["services"]
    except httpx.TransportError:
        return False
    return name in services and bool(services[name]["started"])


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


__all__ = ["Processes", "Running"]
