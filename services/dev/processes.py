"""Services as processes of their own: each is a child that says where its ops port is, and is started again."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from contracts.envelope import Owner as ServiceName
from contracts.errors import Unavailable
from services.dev.children import Child, log_tail, start_child

START_TIMEOUT: Final = timedelta(seconds=60)
STOP_GRACE: Final = timedelta(seconds=15)
"""A little more than the default of MINUTEBOOK_DRAIN_SECONDS."""

PAUSE_SECONDS_MIN: Final = 0.2
PAUSE_SECONDS_MAX: Final = 10.0
"""A service that ends again and again is started again after pauses that double, up to this."""

LONG_SECONDS: Final = 30.0
"""One that ran this long begins with the short pause again."""

_POLL_SECONDS: Final = 0.03


@dataclass(frozen=True, slots=True)
class Running:
    """A service's process that is up. `api_url` is empty for all but the api."""

    pid: int
    ops_url: str
    api_url: str


class Processes:
    """Keeps the processes of services up. `say` hears of each that ended by itself, `changed` of every new one."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        logs: Path,
        say: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self._environment = dict(environment)
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
        # Whoever knows the api's address must find it there again.
        self._environment["MINUTEBOOK_HTTP_PORT"] = self.api_url.rpartition(":")[2]
        self._keepers = [asyncio.create_task(self._keep(name), name=f"keep {name}") for name in names]

    async def stop(self) -> None:
        """Drain all at once, the door among them."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(child.stop(STOP_GRACE) for child in self._children.values()))

    async def _start(self, name: ServiceName) -> None:
        log = self._logs / f"{name}.log"
        before = log.stat().st_size if log.exists() else 0
        child = start_child(
            [sys.executable, "-m", "services.host", "serve", name], name=name, log=log, env=self._environment
        )
        self._children[name] = child
        deadline = time.monotonic() + START_TIMEOUT.total_seconds()
        while (found := _listening(log, before)) is None:
            if child.returncode is not None or time.monotonic() > deadline:
                ended = f"ended with {child.returncode}" if child.returncode is not None else "did not start in time"
                raise Unavailable("dev.service_not_started", f"{name} {ended}. The end of {log}:\n{log_tail(log)}")
            await asyncio.sleep(_POLL_SECONDS)
        self.running[name] = Running(child.pid, str(found["ops_url"]), str(found.get("api_url", "")))

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


def _listening(log: Path, offset: int) -> Mapping[str, object] | None:
    """The line in which a process says that it is up, if it has said so since `offset`."""
    if not log.exists():
        return None
    with log.open("rb") as file:
        file.seek(offset, os.SEEK_SET)
        for line in file:
            if b'"ops_url"' not in line or not line.endswith(b"\n"):
                continue
            said = json.loads(line)
            if said.get("event") == "listening":
                return dict(said)
    return None


__all__ = ["Processes", "Running"]
