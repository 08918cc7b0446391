"""The embedded servers: they start, come back, and never outlive the process that started them."""

import asyncio
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import nats
import psutil
import pytest
import pytest_asyncio

from contracts.errors import Broken, Unavailable
from services.dev.children import start_child
from services.dev.embedded_postgres import RunningPostgres, start_postgres
from services.dev.nats_server import RunningNats, start_nats

ROOT = Path(__file__).parents[2]
PARENT = """
import asyncio, json, sys
from pathlib import Path
from services.dev.embedded_postgres import start_postgres
from services.dev.nats_server import start_nats

async def main(path):
    postgres, nats = await start_postgres(path), await start_nats(path)
    print(json.dumps({"pids": [postgres.pid, nats.pid], "dsn": postgres.dsn(), "url": nats.url}), flush=True)
    await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""

Start = Callable[..., Awaitable[RunningPostgres]]


@pytest_asyncio.fixture
async def postgres(tmp_path: Path) -> AsyncIterator[Start]:
    """Start servers; whatever the test leaves is removed, outside of its folder too."""
    started: list[RunningPostgres] = []

    async def start(path: Path = tmp_path, *, reset: bool = False) -> RunningPostgres:
        started.append(await start_postgres(path, reset=reset))
        return started[-1]

    yield start
    for server in started:
        await server.remove()


async def query(server: RunningPostgres, sql: str) -> object:
    connection = await asyncpg.connect(server.dsn())
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A process that started both servers, and what it says of them."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, tmp_path],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
        process.kill()


@pytest.fixture
def stranger() -> Iterator[Callable[[Path], int]]:
    """Start a process that has nothing to do with us, by the owner of a folder; return its pid."""
    started: list[subprocess.Popen[bytes]] = []

    def start(folder: Path) -> int:
        owner = folder.stat()
        switch = os.geteuid() == 0
        started.append(
            subprocess.Popen(
                ["sleep", "60"],
                cwd="/",
                user=owner.st_uid if switch else None,
                group=owner.st_gid if switch else None,
            )
        )
        return started[-1].pid

    yield start
    for process in started:
        process.kill()
        process.wait()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def ended(pid: int) -> bool:
    """Also when it is a zombie that the machine's first process has not reaped."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def eventually(condition: Callable[[], bool], *, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        threading.Event().wait(0.02)


async def test_postgres_is_durable_private_and_as_the_product_needs_it(postgres: Start, tmp_path: Path) -> None:
    server = await postgres()
    settings = {
        "server_version_num": "18",
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "data_checksums": "on",
        "listen_addresses": "",
        "max_connections": "200",
        "shared_buffers": "128MB",
        "server_encoding": "UTF8",
    }
    for name, value in settings.items():
        assert str(await query(server, f"show {name}")).startswith(value), name
    assert await query(server, "select datlocprovider::text || datlocale from pg_database limit 1") == "bC.UTF-8"
    assert await query(server, "select current_user") == "postgres"
    sockets = Path(str(await query(server, "show unix_socket_directories")))
    assert mode(sockets) == 0o700
    assert len(os.fsencode(sockets)) < 85
    assert all(conn.laddr.port == 0 for conn in psutil.Process(server.pid).net_connections("inet"))
    if os.geteuid() == 0:
        assert pwd.getpwuid(psutil.Process(server.pid).uids().real).pw_name in {"postgres", "nobody"}
        assert "/var/lib/minutebook" in (tmp_path / "postgres/README").read_text()


async def test_what_was_committed_is_there_after_a_restart_and_gone_after_a_reset(postgres: Start) -> None:
    server = await postgres()
    await query(server, "create table kept as select 7 as value")
    dsn = server.dsn()
    await server.stop()
    await server.stop()
    assert ended(server.pid)
    again = await postgres()
    assert again.dsn() == dsn
    assert await query(again, "select value from kept") == 7
    await again.stop()
    empty = await postgres(reset=True)
    assert await query(empty, "select to_regclass('kept')") is None


async def test_a_deleted_folder_begins_anew(postgres: Start, tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    server = await postgres(folder)
    await query(server, "create table kept as select 7 as value")
    await server.stop()
    shutil.rmtree(folder)
    assert await query(await postgres(folder), "select to_regclass('kept')") is None


async def test_a_server_that_does_not_start_says_why(postgres: Start, tmp_path: Path) -> None:
    server = await postgres()
    data = Path(str(await query(server, "show data_directory")))
    await server.stop()
    (data / "postgresql.auto.conf").write_text("nonsense = on\n")
    with pytest.raises(Unavailable) as caught:
        await postgres()
    assert "nonsense" in caught.value.message
    assert str(tmp_path / "postgres/log") in caught.value.message
    assert "--reset" in caught.value.message


async def test_a_pid_file_that_names_some_other_process_does_no_harm(
    postgres: Start, stranger: Callable[[Path], int]
) -> None:
    server = await postgres()
    data = Path(str(await query(server, "show data_directory")))
    await server.stop()
    pid = stranger(data)
    (data / "postmaster.pid").write_text(f"{pid}\n{data}\n1\n5432\n\n\n0 0\nready\n")
    assert await query(await postgres(), "select 1") == 1
    assert not ended(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_the_next_start_recovers_after_any_end_of_the_parent(
    postgres: Start, tmp_path: Path, parent: tuple[subprocess.Popen[str], dict[str, Any]], number: signal.Signals
) -> None:
    process, said = parent
    connection = await asyncpg.connect(said["dsn"])
    await connection.execute("create table kept as select 7 as value")
    everything = [*said["pids"], *(child.pid for child in psutil.Process(said["pids"][0]).children())]
    process.send_signal(number)
    process.wait()
    # No waiting here: the next run meets servers that may still be shutting down.
    server, again = await postgres(), await start_nats(tmp_path)
    assert all(ended(pid) for pid in everything)
    assert await query(server, "select value from kept") == 7
    assert again.url == said["url"]
    connection.terminate()
    await again.stop()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_nothing_outlives_its_parent(
    postgres: Start, parent: tuple[subprocess.Popen[str], dict[str, Any]], number: signal.Signals
) -> None:
    process, said = parent
    everything = [*said["pids"], *(child.pid for child in psutil.Process(said["pids"][0]).children())]
    process.send_signal(number)
    process.wait()
    eventually(lambda: all(ended(pid) for pid in everything), seconds=5)
    await postgres()  # so that its files are removed


async def test_an_orphan_that_nobody_ended_is_ended_by_the_next_start(postgres: Start, tmp_path: Path) -> None:
    orphan, orphan_nats = await postgres(), await start_nats(tmp_path)
    server, again = await postgres(), await start_nats(tmp_path)
    assert ended(orphan.pid)
    assert ended(orphan_nats.pid)
    assert await query(server, "select 1") == 1
    await orphan_nats.stop()
    await again.stop()


async def test_closed_folders_and_a_tight_umask_are_no_hindrance(postgres: Start, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    before = os.umask(0o077)
    try:
        server = await postgres(closed / "stack")
    finally:
        os.umask(before)
    assert await query(server, "select 1") == 1
    assert mode(closed) == 0o700


async def test_nats_keeps_its_streams_and_its_port(tmp_path: Path) -> None:
    server = await start_nats(tmp_path)
    client = await nats.connect(server.url)
    streams = client.jetstream()
    await streams.add_stream(name="KEPT", subjects=["kept.>"])
    await streams.publish("kept.one", b"1")
    await client.close()
    await server.stop()
    assert ended(server.pid)
    again = await start_nats(tmp_path)
    assert again.url == server.url
    client = await nats.connect(again.url)
    assert (await client.jetstream().get_last_msg("KEPT", "kept.one")).data == b"1"
    await client.close()
    await again.stop()


async def test_nats_listens_on_loopback_only_and_takes_another_port_when_its_own_is_gone(tmp_path: Path) -> None:
    first = await start_nats(tmp_path / "one")
    listening = [c.laddr.ip for c in psutil.Process(first.pid).net_connections("tcp") if c.status == "LISTEN"]
    assert listening == ["127.0.0.1"]
    (tmp_path / "two/nats").mkdir(parents=True)
    (tmp_path / "two/nats/port").write_text(f"{first.port}\n")
    second = await start_nats(tmp_path / "two")
    assert second.port != first.port
    with pytest.raises(Unavailable, match="address already in use"):
        await start_nats(tmp_path / "three", port=first.port)
    await second.stop()
    await first.stop()


async def test_nats_with_a_token_turns_others_away(tmp_path: Path) -> None:
    server: RunningNats = await start_nats(tmp_path, token="s3cret")
    await (await nats.connect(server.url)).close()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"CONNECT {}\r\nPING\r\n")
    assert b"Authorization Violation" in await reader.read()
    writer.close()
    await writer.wait_closed()
    assert "s3cret" not in server.log.read_text()
    assert mode(tmp_path / "nats/nats.conf") == 0o600
    await server.stop()


async def test_a_child_that_will_not_stop_is_killed_and_reaped(tmp_path: Path) -> None:
    child = start_child(
        [
            sys.executable,
            "-c",
            "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); signal.pause()",
        ],
        name="stubborn",
        log=tmp_path / "log",
    )
    eventually(lambda: (tmp_path / "log").read_text() == "up\n")
    assert await child.stop(timedelta(seconds=0.2)) == -signal.SIGKILL
    assert not psutil.pid_exists(child.pid)
    assert await child.wait() == await child.stop() == -signal.SIGKILL


async def test_a_child_needs_its_program_and_the_main_thread(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="nowhere"):
        start_child(["/nowhere/program"], name="missing", log=tmp_path / "log")
    with pytest.raises(Broken, match="main thread"):
        await asyncio.to_thread(start_child, ["true"], name="lost", log=tmp_path / "log")
