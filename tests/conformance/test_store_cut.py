"""A connection that is cut between the commit and the reply: what was sent stands, and nobody here was told."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs

from contracts.errors import Unavailable
from libs.eventstore.postgres import PostgresStore
from libs.owner import Done
from libs.postgres import open_pool
from tests.conformance.test_owner import item, owner
from tests.support.postgres import Database

SOCKET = ".s.PGSQL.5432"
_COMPLETED = (b"C", b"s")
"""CommandComplete, or PortalSuspended when one row was asked for."""


class Proxy:
    """Passes everything on, until it is told to keep the reply of the next statement to itself and cut."""

    def __init__(self, target: Path, folder: Path) -> None:
        self._target = target
        self.folder = folder
        self.armed = False
        self.cuts = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._take, self.folder / SOCKET)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        server_reader, server_writer = await asyncio.open_unix_connection(self._target)
        sending = asyncio.create_task(_copy(reader, server_writer))
        try:
            await self._answer(server_reader, writer)
        finally:
            sending.cancel()
            for end in (writer, server_writer):
                end.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Message by message: that a statement is through comes before its commit, ReadyForQuery after it."""
        completed = False
        while head := await reader.read(1):
            length = await reader.readexactly(4)
            body = await reader.readexactly(int.from_bytes(length) - 4)
            completed = completed or head in _COMPLETED
            if self.armed and completed:
                if head == b"Z":
                    self.armed = False
                    self.cuts += 1
                    return
                continue
            if head == b"Z":
                completed = False
            writer.write(head + length + body)
            await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture
async def proxy(database: Database) -> AsyncIterator[Proxy]:
    (host,) = parse_qs(urlsplit(database.app_dsn).query)["host"]
    with tempfile.TemporaryDirectory(prefix="mbp") as folder:
        proxy = Proxy(Path(host) / SOCKET, Path(folder))
        await proxy.start()
        yield proxy
        await proxy.stop()


@pytest.fixture
async def cut_pool(database: Database, proxy: Proxy) -> AsyncIterator[asyncpg.Pool]:
    """The services' way in, past the proxy."""
    pool = await open_pool(f"postgresql://minutebook_app@/{database.name}?host={proxy.folder}", application_name="cut")
    yield pool
    await pool.close()


class ArmsAppends:
    """A store whose next append is answered to nobody."""

    def __init__(self, store: PostgresStore, proxy: Proxy) -> None:
        self._store = store
        self._proxy = proxy
        self.cut_next = False

    def __getattr__(self, name: str) -> object:
        if name == "append" and self.cut_next:
            self.cut_next, self._proxy.armed = False, True
        return getattr(self._store, name)


async def test_a_command_whose_reply_was_lost_is_found_done_when_it_comes_again(
    proxy: Proxy, cut_pool: asyncpg.Pool, pool: asyncpg.Pool
) -> None:
    inner = PostgresStore(cut_pool, service="planner")
    store = ArmsAppends(inner, proxy)
    shell, stream = owner(store), uuid4()
    await shell.handle([item(stream, "start")])
    store.cut_next = True
    with capture_logs() as logs:
        (lost,) = await shell.handle([item(stream, "suspend")])
        assert isinstance(lost, Unavailable)
        assert proxy.cuts == 1
        (again,) = await shell.handle([item(stream, "suspend")])
        async with asyncio.timeout(10):
            while len(logs) < 2:
                await inner.flush()
                await asyncio.sleep(0.02)
    assert isinstance(again, Done)
    assert (again.changed, again.version, again.state.status) == (False, 3, "suspended")
    lines = [(log["event"], log.get("service")) for log in logs]
    assert lines == [("PostgreSQL is away, trying again", "planner"), ("PostgreSQL is back", "planner")]

    witness = PostgresStore(pool)
    (recorded,) = (await witness.load("run", {stream: 2})).streams[stream].events
    assert recorded.type == "run.suspended"
    (moved,) = await shell.handle([item(stream, "flip")])
    assert isinstance(moved, Done)
    assert moved.version == 4


async def test_a_batch_whose_reply_was_lost_is_written_once(proxy: Proxy, cut_pool: asyncpg.Pool) -> None:
    store = ArmsAppends(PostgresStore(cut_pool), proxy)
    shell, streams = owner(store), [uuid4() for _ in range(20)]
    await shell.handle([item(uuid4(), "start")])  # the driver has asked for the types of a batch by now
    store.cut_next = True
    with capture_logs():
        lost = await shell.handle([item(stream, "start") for stream in streams])
        assert all(isinstance(result, Unavailable) for result in lost)
        again = await shell.handle([item(stream, "start") for stream in streams])
    assert [isinstance(result, Done) and not result.changed for result in again] == [True] * 20
    rows = await cut_pool.fetch("select count(*) as n from workflow_history where stream_id = any($1)", streams)
    assert rows[0]["n"] == 40
    outbox = await cut_pool.fetch("select count(*) as n from unpublished")
    assert outbox[0]["n"] == 1, "the sweep publishes what nobody here knew to be written"


async def test_a_history_that_lost_its_end_denies_what_was_cached(pool: asyncpg.Pool, owner_pool: asyncpg.Pool) -> None:
    """As after a failover to a database that had not got everything; others may have gone on there meanwhile."""
    shell, other, short, forked = owner(PostgresStore(pool)), owner(PostgresStore(pool)), uuid4(), uuid4()
    with capture_logs() as logs:
        await shell.handle([item(s, c) for s in (short, forked) for c in ("start", "suspend")])
        before = {row["stream_id"]: row["digest"] for row in await owner_pool.fetch(_DIGESTS)}
        async with owner_pool.acquire() as connection, connection.transaction():
            await connection.execute("set local session_replication_role = replica")
            await connection.execute("delete from workflow_history where version > 2")
            for stream, digest in before.items():
                await connection.execute(
                    "update run_heads set version = 2, state = 'running', digest = $2 where stream_id = $1",
                    stream,
                    digest,
                )
        await other.handle([item(forked, "flip")])
        results = await shell.handle([item(short, "suspend"), item(forked, "suspend")])
    assert [(r.version, r.changed, r.state.status) for r in results if isinstance(r, Done)] == [
        (3, True, "suspended"),
        (3, False, "suspended"),
    ]
    assert "history is not the one that was cached" in {log["event"] for log in logs}


_DIGESTS = "select stream_id, digest from workflow_history where version = 2"
