"""Disks that are full under PostgreSQL or the bus, and have room again.

What was answered as recorded is there, what could not be recorded says so and can be sent again, and nothing spins.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest
from structlog.testing import capture_logs

from contracts.subjects import DURABLES
from minutebook.client import ApiError
from tests.support.disk import Disk, mounted
from tests.support.fleet import Fleet, OwnPostgres, found, migrated, open_fleet, own_nats, own_postgres
from tests.support.places import AWAY, BEFORE, Logs, finish, said, spread
from tests.support.postgres import Database

NO_ROOM: Final = "PostgreSQL has no room to write, trying again"
ROOM: Final = "PostgreSQL has room again"

SENDS: Final = 4
PAUSE_SECONDS: Final = 0.4
"""How often callers try while there is no room, and how long they wait in between."""

UNHURRIED: Final[dict[str, Any]] = {"runner_slots": 1, "ask_timeout_seconds": 30.0}
"""For a bus that has no room: each owner first waits for what it publishes, so its answers take seconds."""

FAILED_PER_SECOND_MAX: Final = 60
"""Statements: well above what callers and ticking duties try, far below what a loop without a pause does."""

REFUSE: Final = """
create function no_room() returns trigger language plpgsql as
$$ begin raise sqlstate '53100' using message = 'could not extend file: No space left on device'; end $$;
do $$ declare name text; begin
  for name in select relname from pg_class
               where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition loop
    execute format('create trigger a_no_room before insert on %I for each statement execute function no_room()', name);
  end loop;
end $$"""
WRITE_AHEAD: Final = """
select pg_logical_emit_message(false, 'ballast', g::text), pg_switch_wal() from generate_series(1, 100) g"""
AGREE: Final = "drop function no_room() cascade"


@dataclass
class Sent:
    """What callers sent while there was no room, by the answer that they got."""

    decided: bool = False
    started: list[str] = field(default_factory=list)
    delivered: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    undelivered: list[str] = field(default_factory=list)

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.started, *self.refused, *self.delivered, *self.undelivered)


async def send(fleet: Fleet, *, seconds: float) -> Sent:
    """Go on starting runs, deciding and delivering webhooks; each is recorded, or refused for now with its id."""
    sent = Sent(decided=await accepted(fleet.approve("decided")))
    for number in range(SENDS):
        started, delivered = f"started-{number}", f"delivered-{number}"
        (sent.started if await accepted(fleet.start(started)) else sent.refused).append(started)
        status = await fleet.deliver(delivered)
        assert status in (202, 503)
        (sent.delivered if status == 202 else sent.undelivered).append(delivered)
        await asyncio.sleep(max(PAUSE_SECONDS, seconds / SENDS))
    return sent


async def accepted(command: Awaitable[object]) -> bool:
    """Whether a command was recorded."""
    try:
        await command
    except ApiError as error:
        problem = error.problem
        assert problem.status == 503
        # The door itself may have found no room, to connect for example; then nothing was asked of anybody.
        assert "command_id" in problem.extra or problem.code.startswith("postgres.")
        return False
    return True


async def settle(fleet: Fleet, sent: Sent) -> None:
    """Send again what was refused, then see everything completed, and written once."""
    if not sent.decided:
        await fleet.approve("decided")
    for key in sent.refused:
        await fleet.start(key)
    for key in sent.undelivered:
        assert await fleet.deliver(key) == 202
    for key in (*sent.delivered, *sent.undelivered):
        await fleet.started_by(key)
    await finish(fleet, *BEFORE, "decided", *sent.keys)


async def settled(fleet: Fleet) -> None:
    """Runs at every place, and one that a person is about to decide on."""
    await fleet.start("decided")
    await fleet.waits("decided")
    await spread(fleet)


async def test_a_database_that_refuses_whatever_needs_room(
    database: Database, tmp_path: Path, outage_seconds: float
) -> None:
    """As PostgreSQL does on a full disk: what fits into the pages that it has goes on."""
    owner = await asyncpg.connect(database.owner_dsn)
    with capture_logs() as logs:
        async with (
            own_nats(tmp_path) as bus,
            open_fleet(database.app_dsn, database.owner_dsn, bus.url, tmp_path, runner_slots=1) as fleet,
        ):
            await settled(fleet)
            await owner.execute(REFUSE)
            before = await _failed(owner)
            sent = await send(fleet, seconds=outage_seconds)
            assert (sent.started, sent.delivered) == ([], [])
            assert await _failed(owner) - before < FAILED_PER_SECOND_MAX * max(outage_seconds, SENDS * PAUSE_SECONDS)
            await owner.execute(AGREE)
            await settle(fleet, sent)
            assert await _lost_leases(owner) == 0
            missed = await told_once(logs)
    await owner.close()
    assert {"planner", "runner", "api", "decision"} <= missed.keys()
    assert nothing_else(logs) == []


async def test_a_full_disk_under_postgresql(tmp_path: Path, outage_seconds: float) -> None:
    """First tables find no room, which is refused; then the write-ahead log does, and the server goes down with it."""
    async with own_nats(tmp_path) as bus, small_postgres(tmp_path) as (postgres, disk):
        app, owner = postgres.dsn("product", "minutebook_app"), postgres.dsn("product")
        with capture_logs() as logs:
            async with open_fleet(app, owner, bus.url, tmp_path, runner_slots=1) as fleet:
                await settled(fleet)
                writer = await asyncpg.connect(owner)
                disk.fill()
                sent = await send(fleet, seconds=outage_seconds)
                assert sent.refused
                await exhausted(writer)
                with pytest.raises(ApiError) as refused:
                    await fleet.start("refused")
                assert refused.value.problem.status == 503
                await asyncio.sleep(outage_seconds)
                disk.empty()
                await postgres.stop()
                await postgres.start()
                await fleet.start("refused")
                await settle(fleet, sent)
        assert nothing_else(logs) == []


@asynccontextmanager
async def small_postgres(folder: Path) -> AsyncIterator[tuple[OwnPostgres, Disk]]:
    """A migrated server on a disk that can be filled."""
    async with own_postgres(folder) as postgres:
        await migrated(postgres)
        data = postgres.data
        await postgres.stop()
        with mounted(data, megabytes=256) as disk:
            await postgres.start()
            try:
                yield postgres, disk
            finally:
                await postgres.stop()


async def exhausted(connection: asyncpg.Connection) -> None:
    """Write ahead until no segment of the log can be made, which ends the server or each of its lives."""
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await connection.execute(WRITE_AHEAD)
    connection.terminate()


async def test_a_full_disk_under_the_bus(database: Database, tmp_path: Path, outage_seconds: float) -> None:
    """nats-server gives its store up when it cannot write, and takes it up again when it is started anew."""
    with mounted(tmp_path / "nats", megabytes=48) as disk, capture_logs() as logs:
        async with (
            own_nats(tmp_path) as bus,
            open_fleet(database.app_dsn, database.owner_dsn, bus.url, tmp_path, **UNHURRIED) as fleet,
        ):
            await settled(fleet)
            disk.fill()
            sent = await send(fleet, seconds=outage_seconds)
            assert (sent.refused, sent.undelivered) == ([], []), "PostgreSQL has room"
            disk.empty()
            await bus.stop()
            await bus.start()
            await settle(fleet, sent)
    said_seldom(logs)


async def test_a_bus_that_may_store_no_more(database: Database, tmp_path: Path, outage_seconds: float) -> None:
    """The same without a disk of its own: the limit of what it may keep is below what it keeps."""
    with capture_logs() as logs:
        async with (
            own_nats(tmp_path) as bus,
            open_fleet(database.app_dsn, database.owner_dsn, bus.url, tmp_path, **UNHURRIED) as fleet,
        ):
            await settled(fleet)
            await bus.stop()
            await bus.start(store_bytes_max=1)
            sent = await send(fleet, seconds=outage_seconds)
            assert (sent.refused, sent.undelivered) == ([], []), "PostgreSQL has room"
            await bus.stop()
            await bus.start()
            await settle(fleet, sent)
    said_seldom(logs)


def said_seldom(logs: Logs) -> None:
    """Nothing is worse than a warning, and each is said a few times by whoever has to say it, however long it lasts."""
    loud = Counter(log["event"] for log in logs if log["log_level"] in ("warning", "error", "critical"))
    assert not [log for log in logs if log["log_level"] in ("error", "critical")]
    assert max(loud.values()) <= 2 * len(DURABLES), loud


async def told_once(logs: Logs) -> dict[object, int]:
    """Wait until each service that found no room has said that there is room; returns how often each said so."""

    async def told() -> dict[object, int] | None:
        missed = said(logs, NO_ROOM, "service")
        return missed if missed == said(logs, ROOM, "service") else None

    missed = await found(told)
    assert set(missed.values()) == {1}
    return missed


def nothing_else(logs: Logs) -> list[object]:
    """Warnings and errors beside those that tell of the outage."""
    loud = [log for log in logs if log["log_level"] in ("warning", "error", "critical")]
    return [log for log in loud if log["event"] not in (NO_ROOM, AWAY)]


async def _failed(connection: asyncpg.Connection) -> int:
    """How many statements have failed in this database."""
    row = await connection.fetchrow("select xact_rollback from pg_stat_database where datname = current_database()")
    return int(row["xact_rollback"])


async def _lost_leases(connection: asyncpg.Connection) -> int:
    """How many claims were lost or given back. Few may be before an attempt fails: an outage must not use them up."""
    row = await connection.fetchrow("select count(*) as lost from workflow_history where type = 'attempt.lease_lost'")
    return int(row["lost"])
