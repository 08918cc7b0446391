"""The services' processes: kept up, killed, frozen, and started to die at a named place."""

import asyncio
import json
import os
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, Final

from libs.config.settings import variable
from libs.faultpoints import VARIABLE
from minutebook.client import Client
from services.dev.people import ADMINISTRATOR
from tests.chaos import forked
from tests.chaos.ground import Ground

UP_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 20.0
_PAUSE_SECONDS: Final = 0.2
_LOOK_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Death:
    """A process that was ended by SIGKILL. `at` is the wall clock's, which the database shares."""

    service: str
    at: float
    how: str


@dataclass(slots=True)
class Slot:
    """The place of one process: who is in it now, and how it and the next one are to die."""

    service: str
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    """What its processes are told beside what all are."""

    url: str = ""
    """Where it listens; of doors only."""

    process: ForkServerProcess | None = None
    up: bool = False
    killed: bool = False
    doomed: str = ""
    """The fault point that its process was started with, and the count."""

    doom_next: str = ""

    @property
    def is_doomed(self) -> bool:
        """Whether its process, or the next one, is to die at a fault point and has not."""
        return bool(self.doomed or self.doom_next)


@dataclass
class Fleet:
    """Every process of an installation. `kill`, `doom` and `freeze` strike; whatever ends is started again."""

    ground: Ground
    slots: list[Slot]
    forking: ForkServerContext
    deaths: list[Death] = field(default_factory=list)
    pids: set[int] = field(default_factory=set)
    failed_starts: int = 0
    on_start: Callable[[Slot], str] | None = None
    """Asked before each start for a fault point, or nothing."""

    _keepers: list[asyncio.Task[None]] = field(default_factory=list)

    def of(self, service: str) -> list[Slot]:
        return [slot for slot in self.slots if slot.service == service]

    @property
    def url(self) -> str:
        """Of the first door."""
        return self.of("api")[0].url

    async def start(self) -> None:
        """Return when each is up."""
        self._keepers = [asyncio.create_task(self._keep(slot), name=f"keep {slot.service}") for slot in self.slots]
        await self.all_up()

    async def all_up(self) -> None:
        """Wait until no process is missing."""
        async with asyncio.timeout(UP_SECONDS_MAX):
            while not all(slot.up for slot in self.slots):  # noqa: ASYNC110 - the other side is a process
                await asyncio.sleep(_LOOK_SECONDS)

    async def stop(self) -> None:
        """Drain all, and kill what has not ended then."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for slot in self.slots:
            _signal(slot, signal.SIGCONT)
            _signal(slot, signal.SIGTERM)
        await asyncio.gather(*(asyncio.to_thread(_join, slot) for slot in self.slots))

    def kill(self, slot: Slot, how: str = "at random") -> bool:
        """End a process where it stands; False when there is none."""
        if slot.process is None or slot.killed or slot.process.exitcode is not None:
            return False
        slot.killed = True
        self.deaths.append(Death(slot.service, time.time(), how))
        _signal(slot, signal.SIGKILL)
        return True

    async def replace(self, slot: Slot) -> None:
        """Stop a process as a deploy does, and return when the next one in its place is up."""
        before = slot.process
        _signal(slot, signal.SIGTERM)
        async with asyncio.timeout(UP_SECONDS_MAX):
            while slot.process is before or not slot.up:  # noqa: ASYNC110 - the other side is a process
                await asyncio.sleep(_LOOK_SECONDS)

    def doom(self, slot: Slot, faultpoint: str) -> None:
        """Start the process anew, to die at a fault point. The end of the one that is there is a kill too."""
        slot.doom_next = faultpoint
        self.kill(slot, "to be doomed")

    def pardon(self, slot: Slot) -> None:
        """Start the process anew, to live. The end of the one that is there is a kill too."""
        slot.doom_next = ""
        self.kill(slot, "to be pardoned")

    async def freeze(self, slot: Slot, *, seconds: float) -> None:
        """Stop a process in its tracks and let it go on later, believing that no time has passed."""
        process = slot.process
        if process is None or not slot.up:
            return
        _signal(slot, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            if slot.process is process:
                _signal(slot, signal.SIGCONT)

    def said(self) -> list[dict[str, Any]]:
        """Every log line of every process."""
        lines = [line for slot in self.slots for line in slot.log.read_text().splitlines()]
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    async def _keep(self, slot: Slot) -> None:
        while True:
            before = slot.log.stat().st_size
            process = self._begin(slot)
            while (code := process.exitcode) is None:
                slot.up = slot.up or _listens(slot.log, before)
                await asyncio.sleep(_LOOK_SECONDS)
            doomed, slot.doomed, slot.up = slot.doomed, "", False
            if code == -signal.SIGKILL:
                if not slot.killed:
                    self.deaths.append(Death(slot.service, time.time(), doomed.partition(":")[0]))
            else:
                self.failed_starts += 1
                await asyncio.sleep(_PAUSE_SECONDS)

    def _begin(self, slot: Slot) -> ForkServerProcess:
        slot.doomed = slot.doom_next or (self.on_start(slot) if self.on_start is not None else "")
        slot.doom_next, slot.killed = "", False
        env = {**self.ground.environment, **slot.env}
        if slot.doomed:
            env[VARIABLE] = slot.doomed
        if slot.url:
            env[variable("http_port")] = slot.url.rpartition(":")[2]
        slot.process = forked.start(self.forking, slot.service, env=env, log=slot.log)
        assert slot.process.pid is not None
        self.pids.add(slot.process.pid)
        return slot.process


@asynccontextmanager
async def open_fleet(
    ground: Ground, services: Sequence[str], *, envs: Sequence[Mapping[str, str]] | None = None
) -> AsyncIterator[Fleet]:
    """Start a process for each name, and declare the definitions. A name that stands twice has two replicas.

    `envs` is what each is told beside what all are, in the order of the names.
    """
    logs = Path(tempfile.mkdtemp(prefix="logs-", dir=ground.folder))
    slots = []
    for number, (service, env) in enumerate(zip(services, envs or [{}] * len(services), strict=True)):
        log = logs / f"{service}.{number}.log"
        log.touch()
        url = f"http://127.0.0.1:{_free_port()}" if service == "api" else ""
        slots.append(Slot(service, log, env, url))
    fleet = Fleet(ground, slots, forked.context())
    try:
        await fleet.start()
        async with Client(fleet.url, ground.tokens[ADMINISTRATOR]) as client:
            await client.sync(ground.files)
        yield fleet
    finally:
        await fleet.stop()


def _listens(log: Path, offset: int) -> bool:
    """Whether a process has said since `offset` that it is up."""
    with log.open("rb") as file:
        file.seek(offset)
        return any(b'"ops_url"' in line and b'"listening"' in line for line in file)


def _signal(slot: Slot, number: signal.Signals) -> None:
    if slot.process is not None and slot.process.pid is not None and slot.process.exitcode is None:
        os.kill(slot.process.pid, number)


def _join(slot: Slot) -> None:
    if slot.process is None:
        return
    slot.process.join(STOP_SECONDS_MAX)
    if slot.process.exitcode is None:
        slot.process.kill()
        slot.process.join()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


__all__ = ["Death", "Fleet", "Slot", "open_fleet"]
