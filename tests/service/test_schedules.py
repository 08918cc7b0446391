"""Schedules against a real record: one run per slot, whoever looks, over days and changes of the clock."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from structlog.testing import capture_logs

from contracts import ids
from contracts.base import JsonObject, Principal
from contracts.commands import PauseSchedule, ResumeSchedule
from contracts.errors import Rejected
from contracts.events.definition import DefinitionPromoted, DefinitionSynced, ScheduleTrigger
from contracts.events.identity import ProjectCreated, UserDeactivated, UserRegistered
from contracts.events.run import RunCompleted, RunFailed, RunStarted
from contracts.events.schedule import ScheduleDeclared, ScheduleSkipped
from contracts.replies import ScheduleChanged
from libs.bus.port import ACK
from libs.domain import definition, identity, run, schedule
from libs.domain.access import ADMINISTRATOR
from libs.domain.categories import CATEGORIES
from libs.domain.slots import line_of
from libs.eventstore.verify import verify
from libs.faultpoints import VARIABLE
from libs.owner import Publisher
from libs.process.asks import ask
from services.scheduler.app import build
from services.scheduler.schedules import Schedules
from tests.support.postgres import Database
from tests.support.record import ListeningBus, Record, open_record
from tests.support.runs import agent, bundle_of

RUN_AS: Final = "workflows@example.com"
MINUTELY: Final = "0 * * * * *"
BERLIN: Final = "Europe/Berlin"


@dataclass
class World:
    """A record with a service user and a project, and three schedulers that do what a test delivers."""

    record: Record
    buses: list[ListeningBus]
    synced: dict[str, int] = field(default_factory=dict)

    async def sync(
        self, name: str, *lines: dict[str, Any], told: bool = True, context: JsonObject | None = None, **changes: Any
    ) -> None:
        """Declare a version of a definition with these schedules."""
        triggers = tuple(
            ScheduleTrigger.model_validate(
                {"cron": None, "every_seconds": None, "timezone": "UTC", "overlap": "skip", "run_as": RUN_AS} | line
            )
            for line in lines
        )
        bundle = bundle_of(agent("draft"), id=name, context_defaults=context or {})
        ref = await self.record.keep(bundle.model_dump(mode="json"))
        number = self.synced[name] = self.synced.get(name, 0) + 1
        synced = DefinitionSynced(
            at=await self.record.store.now(),
            definition_id=name,
            name=name,
            hash=f"{number:064x}",
            bundle=ref,
            enabled=True,
            event_triggers=(),
            required_context=(),
            schedules=triggers,
        ).model_copy(update=changes)
        await self.record.plant(definition.CATEGORY, self.definition(name), synced)
        if told:
            await self.hear(name)

    async def hear(self, name: str, bus: int = 0) -> None:
        stream_id = self.definition(name)
        assert list(await self.buses[bus].tell("scheduler-history", "definition.synced", stream_id)) == [ACK]

    def definition(self, name: str) -> UUID:
        return ids.definition(self.record.group, name)

    def line(self, name: str, cron: str | None, *, every: int | None = None, zone: str = "UTC") -> UUID:
        return ids.schedule(self.record.group, name, line_of(cron, every, zone))

    async def go_to(self, moment: datetime) -> None:
        """Put the clock to a moment that is still to come. It goes on from there."""
        await self.record.shift(moment - await self.record.store.now())

    async def go_on(self, **by: float) -> None:
        await self.record.shift(timedelta(**by))

    async def look(self, *buses: int) -> None:
        """Let schedulers look at what is due, at the same time, until nothing is."""
        while due := [found.stream_id for found in await self.record.store.due("schedule", limit=500)]:
            await asyncio.gather(*(self.buses[bus].wake("scheduler", "schedule", *due) for bus in buses or (0,)))

    async def state(self, schedule_id: UUID) -> schedule.State:
        return await self.record.state(schedule.CATEGORY, schedule_id)

    async def types(self, schedule_id: UUID) -> list[str]:
        return [name.removeprefix("schedule.") for name in await self.record.types("schedule", schedule_id)]

    async def skips(self, schedule_id: UUID) -> list[ScheduleSkipped]:
        load = await self.record.store.load("schedule", {schedule_id: 0})
        events = [recorded.event for recorded in load.streams[schedule_id].events]
        return [event for event in events if isinstance(event, ScheduleSkipped)]

    async def slots(self) -> list[str]:
        rows = await self.record.pool.fetch(
            "select payload->'trigger'->>'slot' as slot from workflow_history"
            " where type = 'run.created' order by xid, position"
        )
        return [row["slot"] for row in rows]

    async def end(self, run_id: UUID, *, failed: bool = False) -> datetime:
        now = await self.record.store.now()
        over = RunFailed(at=now, failure_class="default", reason="it broke")
        last = over if failed else RunCompleted(at=now, outcome="succeeded")
        await self.record.plant(run.CATEGORY, run_id, RunStarted(at=now), last)
        return now


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    async with AsyncExitStack() as exit_, open_record(database) as record:
        now = await record.store.now()
        user = UserRegistered(at=now, email=RUN_AS, name="Workflows", kind="service_user")
        await record.plant(identity.CATEGORY, ids.user(record.group, RUN_AS), user)
        buses = [ListeningBus() for _ in range(3)]
        async with exit_:
            for bus in buses:
                # None of them works by its own clock: another holds the lease.
                service = build(await record.tools(bus, scheduler_tick_seconds=60.0))
                assert await record.store.hold_lease("scheduler", UUID(int=1), for_=timedelta(days=10_000))
                await service.start()
                exit_.push_async_callback(service.stop)
            yield World(record, buses)


def _next_monday_at_seven(now: datetime) -> datetime:
    monday = now.replace(hour=7, minute=0, second=0, microsecond=0) + timedelta(days=-now.weekday() % 7)
    return monday if monday > now else monday + timedelta(days=7)


async def test_three_replicas_start_one_run_per_slot(world: World) -> None:
    first = _next_monday_at_seven((await world.record.store.now()).astimezone(ZoneInfo(BERLIN)))
    await world.sync("pmo", {"cron": "0 0 7 * * 1", "timezone": BERLIN}, context={"team": "core"})
    line = world.line("pmo", "0 0 7 * * 1", zone=BERLIN)
    await world.go_to(datetime(2027, 3, 22, 6, 0, 1, tzinfo=UTC))
    await world.look(0, 1, 2)
    await world.end((await world.state(line)).last_run or uuid4())
    await world.go_to(datetime(2027, 3, 29, 4, 59, 50, tzinfo=UTC))
    await world.look(0, 1, 2)
    await world.go_to(datetime(2027, 3, 29, 5, 0, 1, tzinfo=UTC))
    await world.look(0, 1, 2)
    assert await world.slots() == ["2027-03-22T07:00:00+01:00", "2027-03-29T07:00:00+02:00"], "Mondays, in its zone"
    state = await world.state(line)
    assert (await world.types(line))[-2:] == ["fired", "fired"]
    (late,) = await world.skips(line)
    assert (late.reason, late.slot) == ("late", first.isoformat()), "the months before were skipped, in one fact"
    assert late.count > 10

    assert state.last_run is not None
    begun = await world.record.state(run.CATEGORY, state.last_run)
    assert (begun.status, begun.context, begun.hash) == ("created", {"team": "core"}, f"{1:064x}")
    assert begun.initiated_by is not None
    assert begun.initiated_by.id == ids.user(world.record.group, RUN_AS)
    assert begun.trigger is not None
    assert (begun.trigger.kind, begun.trigger.schedule_id) == ("schedule", line)
    head = await world.record.pool.fetchrow("select wake_at, next_at, timezone, last_run from schedule_heads")
    assert head is not None
    assert tuple(head) == (*[datetime(2027, 4, 5, 5, 0, tzinfo=UTC)] * 2, BERLIN, state.last_run)
    assert {message.subject for bus in world.buses for message in bus.published} >= {"history.run.created"}
    assert (await verify(world.record.pool, CATEGORIES)).ok


@pytest.mark.parametrize(
    ("begin", "hours", "minutes"),
    [(datetime(2027, 3, 28, 0, 0, tzinfo=UTC), 3, 180), (datetime(2027, 10, 30, 23, 0, tzinfo=UTC), 4, 240)],
)
async def test_an_every_minute_line_loses_and_doubles_nothing_when_the_clock_is_changed(
    world: World, begin: datetime, hours: int, minutes: int
) -> None:
    await world.go_to(begin - timedelta(seconds=30))
    await world.sync("pmo", {"cron": MINUTELY, "timezone": BERLIN, "overlap": "allow"})
    for step in range(hours * 10):
        await world.go_to(begin + timedelta(minutes=6 * step + 5, seconds=30))
        await world.look(step % 3, (step + 1) % 3)
    slots = await world.slots()
    assert [datetime.fromisoformat(slot) for slot in slots] == [begin + timedelta(minutes=n) for n in range(minutes)]
    assert len(set(slots)) == minutes
    assert await world.skips(world.line("pmo", MINUTELY, zone=BERLIN)) == []


async def test_lines_follow_the_version_that_new_runs_take(world: World) -> None:
    await world.sync("pmo", {"cron": MINUTELY}, {"every_seconds": 300})
    minutely, every = world.line("pmo", MINUTELY), world.line("pmo", None, every=300)
    assert [await world.types(line) for line in (minutely, every)] == [["declared"], ["declared"]]
    await world.hear("pmo", 1)
    assert await world.types(minutely) == ["declared"]

    await world.sync("pmo", {"cron": MINUTELY, "timezone": BERLIN}, {"every_seconds": 300})
    berlin = world.line("pmo", MINUTELY, zone=BERLIN)
    assert await world.types(minutely) == ["declared", "retired"]
    assert await world.types(berlin) == ["declared"]
    assert await world.types(every) == ["declared"]

    await world.sync("pmo", {"cron": MINUTELY}, enabled=False)
    assert [(await world.state(line)).status for line in (minutely, berlin, every)] == ["retired"] * 3
    await world.go_on(hours=1)
    await world.sync("pmo", {"cron": MINUTELY})
    assert (await world.state(minutely)).status == "active"
    await world.look()
    assert await world.slots() == [], "what passed while it was retired is not made up for"


async def test_a_canary_changes_no_line_until_it_is_promoted(world: World) -> None:
    await world.sync("pmo", {"cron": MINUTELY})
    await world.sync("pmo", {"cron": MINUTELY, "timezone": BERLIN}, canary_percent=10)
    minutely, berlin = world.line("pmo", MINUTELY), world.line("pmo", MINUTELY, zone=BERLIN)
    assert [(await world.state(line)).status for line in (minutely, berlin)] == ["active", "absent"]
    for version, statuses in ((2, ["retired", "active"]), (1, ["active", "retired"])):
        now = await world.record.store.now()
        promoted = DefinitionPromoted(at=now, hash=f"{version:064x}")
        await world.record.plant(definition.CATEGORY, world.definition("pmo"), promoted)
        await world.buses[2].tell("scheduler-history", "definition.promoted", world.definition("pmo"))
        assert [(await world.state(line)).status for line in (minutely, berlin)] == statuses


async def test_a_version_of_which_nobody_heard_is_found_within_a_minute(world: World) -> None:
    await world.sync("pmo", {"cron": MINUTELY}, told=False)
    await world.sync("gone", {"cron": MINUTELY})
    await world.sync("gone", told=False)
    schedules = Schedules(world.record.store, Publisher(world.buses[0], world.record.store))
    await schedules.keep()
    assert await world.types(world.line("pmo", MINUTELY)) == ["declared"]
    assert await world.types(world.line("gone", MINUTELY)) == ["declared", "retired"]


async def test_a_line_that_its_version_lost_is_not_fired_even_when_nobody_heard(world: World) -> None:
    await world.sync("pmo", {"cron": MINUTELY})
    await world.sync("pmo", told=False)
    await world.go_on(minutes=2)
    await world.look()
    assert await world.types(world.line("pmo", MINUTELY)) == ["declared", "retired"]
    assert await world.slots() == []


async def test_a_slot_that_cannot_start_is_skipped_and_logged_and_the_next_is_tried(world: World) -> None:
    group = world.record.group
    away = UserRegistered(at=await world.record.store.now(), email="away@example.com", name="Away", kind="user")
    await world.record.plant(identity.CATEGORY, ids.user(group, away.email), away, UserDeactivated(at=away.at))
    await world.go_to(datetime(2027, 1, 4, 8, 59, 30, tzinfo=UTC))
    await world.sync("owned", {"cron": MINUTELY, "run_as": "away@example.com"})
    await world.sync("filed", {"cron": MINUTELY, "project": "core"})
    await world.sync("needy", {"cron": MINUTELY}, required_context=("jira_key",))
    lines = {reason: world.line(name, MINUTELY) for reason, name in _REASONS.items()}
    await world.go_to(datetime(2027, 1, 4, 9, 2, 1, tzinfo=UTC))
    with capture_logs() as logs:
        await world.look()
    for reason, line in lines.items():
        (skipped,) = await world.skips(line)
        assert (skipped.reason, skipped.slot, skipped.count) == (reason, "2027-01-04T09:00:00+00:00", 3)
        assert "@" not in skipped.detail, "whose address it is the definition says, and the history does not"
    told = {(log["definition_id"], log["reason"]) for log in logs if log["event"] == "slots skipped"}
    assert told == {(name, reason) for reason, name in _REASONS.items()}

    here = away.model_copy(update={"email": "here@example.com"})
    await world.record.plant(identity.CATEGORY, ids.user(group, here.email), here)
    project = ProjectCreated(at=here.at, key="core", name="Core")
    await world.record.plant(identity.CATEGORY, ids.project(group, "core"), project)
    await world.sync("owned", {"cron": MINUTELY, "run_as": "Here@example.com"})
    await world.sync("needy", {"cron": MINUTELY}, required_context=("jira_key",), context={"jira_key": "CORE-1"})
    await world.go_to(datetime(2027, 1, 4, 9, 3, 1, tzinfo=UTC))
    await world.look()
    assert await world.slots() == ["2027-01-04T09:03:00+00:00"] * 3


_REASONS: Final = {"no_owner": "owned", "no_project": "filed", "context": "needy"}


async def test_an_outage_is_one_fact_and_what_is_not_ten_minutes_old_is_made_up_for(world: World) -> None:
    await world.go_to(datetime(2027, 1, 4, 9, 0, 30, tzinfo=UTC))
    await world.sync("pmo", {"cron": MINUTELY, "overlap": "allow"})
    await world.go_to(datetime(2027, 1, 6, 9, 0, 30, tzinfo=UTC))
    await world.look(0, 1, 2)
    (skipped,) = await world.skips(world.line("pmo", MINUTELY))
    assert (skipped.reason, skipped.slot, skipped.count) == ("late", "2027-01-04T09:01:00+00:00", 2 * 24 * 60 - 10)
    assert await world.slots() == [f"2027-01-06T08:{m}:00+00:00" for m in range(51, 60)] + ["2027-01-06T09:00:00+00:00"]


async def test_a_slot_is_skipped_while_the_run_before_is_open(world: World) -> None:
    await world.go_to(datetime(2027, 1, 4, 9, 0, 30, tzinfo=UTC))
    await world.sync("pmo", {"cron": MINUTELY})
    line = world.line("pmo", MINUTELY)
    for minute in (1, 2, 3):
        await world.go_to(datetime(2027, 1, 4, 9, minute, 1, tzinfo=UTC))
        await world.look()
    assert await world.types(line) == ["declared", "fired", "skipped", "skipped"]
    assert {skipped.reason for skipped in await world.skips(line)} == {"overlap"}
    last_run = (await world.state(line)).last_run
    assert last_run is not None
    await world.end(last_run, failed=True)
    await world.go_to(datetime(2027, 1, 4, 9, 4, 1, tzinfo=UTC))
    await world.look()
    assert (await world.slots())[-1] == "2027-01-04T09:04:00+00:00"


async def test_an_interval_repeats_from_the_end_of_its_last_run(world: World) -> None:
    await world.sync("pmo", {"every_seconds": 300})
    line = world.line("pmo", None, every=300)
    await world.go_on(seconds=301)
    await world.look(0, 1, 2)
    first = (await world.state(line)).last_run
    assert first is not None
    await world.go_on(hours=1)
    await world.look(0, 1, 2)
    assert (await world.state(line)).last_run == first, "never two at once"
    ended = await world.end(first)
    await world.go_on(seconds=61)
    await world.look()
    wake_at = await world.record.pool.fetchval("select wake_at from schedule_heads")
    assert wake_at == ended + timedelta(seconds=300), "woken when it is due, not when somebody looked"
    await world.go_on(seconds=240)
    await world.look(0, 1, 2)
    second = (await world.state(line)).last_run
    assert second not in {None, first}
    assert len(await world.slots()) == 2


async def test_administrators_pause_and_resume(world: World) -> None:
    await world.go_to(datetime(2027, 1, 4, 9, 0, 30, tzinfo=UTC))
    await world.sync("pmo", {"cron": MINUTELY})
    line = world.line("pmo", MINUTELY)
    admin = Principal(
        kind="user",
        id=uuid4(),
        name="ada@example.com",
        tenant_group=world.record.group,
        tenant=world.record.tenant,
        roles=frozenset({ADMINISTRATOR}),
    )

    async def change(kind: type[PauseSchedule | ResumeSchedule], principal: Principal, schedule_id: UUID = line) -> str:
        command = kind(
            command_id=uuid4(),
            deadline=await world.record.store.now() + timedelta(seconds=5),
            principal=principal,
            schedule_id=schedule_id,
        )
        return (await ask(world.buses[1], command, ScheduleChanged, timeout=timedelta(seconds=5))).state

    async def refused(
        kind: type[PauseSchedule | ResumeSchedule], principal: Principal, schedule_id: UUID = line
    ) -> Any:
        with pytest.raises(Rejected) as rejected:
            await change(kind, principal, schedule_id)
        return rejected.value.code, rejected.value.status

    assert await change(PauseSchedule, admin) == "paused"
    assert await change(PauseSchedule, admin) == "paused"
    await world.go_to(datetime(2027, 1, 4, 9, 5, 30, tzinfo=UTC))
    await world.look()
    assert await world.types(line) == ["declared", "paused"]
    assert await change(ResumeSchedule, admin) == "active"
    await world.look()
    assert await world.slots() == []
    await world.go_to(datetime(2027, 1, 4, 9, 6, 1, tzinfo=UTC))
    await world.look()
    assert await world.slots() == ["2027-01-04T09:06:00+00:00"]

    clerk = admin.model_copy(update={"roles": frozenset({"developer"})})
    stranger = admin.model_copy(update={"tenant_group": uuid4()})
    assert await refused(PauseSchedule, clerk) == ("schedule.not_yours", 403)
    assert await refused(PauseSchedule, stranger) == ("schedule.not_found", 404)
    assert await refused(ResumeSchedule, admin, uuid4()) == ("schedule.not_found", 404)
    await world.sync("pmo")
    assert await refused(ResumeSchedule, admin) == ("schedule.retired", 409)


async def test_one_bad_line_never_stops_the_others(world: World) -> None:
    """A zone that is gone, a bundle that is gone, one that cannot be read: each is told of, and the good one fires."""
    await world.go_to(datetime(2027, 1, 4, 9, 0, 30, tzinfo=UTC))
    for name in ("lost", "spoilt", "good"):
        await world.sync(name, {"cron": MINUTELY})
    broken = ScheduleTrigger(cron=MINUTELY, every_seconds=None, timezone="Mars/Base", overlap="skip", run_as=RUN_AS)
    await world.sync("zoneless", schedules=(broken,))
    declared = await world.types(world.line("zoneless", MINUTELY, zone="Mars/Base"))
    assert declared == ["declared"]
    spoilt: JsonObject = {"definition": "none"}
    for name, content in (("lost", None), ("spoilt", spoilt)):
        load = await world.record.store.load("definition", {world.definition(name): 0})
        synced = load.streams[world.definition(name)].events[0].event
        assert isinstance(synced, DefinitionSynced)
        gone = synced.bundle.model_copy(update={"digest": "f" * 64})
        ref = gone if content is None else await world.record.keep(content)
        await world.record.plant(definition.CATEGORY, world.definition(name), synced.model_copy(update={"bundle": ref}))
    await world.go_to(datetime(2027, 1, 4, 9, 2, 0, tzinfo=UTC))
    with capture_logs() as logs:
        await world.look()
    assert await world.slots() == ["2027-01-04T09:01:00+00:00"]
    codes = {log["code"] for log in logs if log["event"] == "wake failed"}
    assert codes == {"schedule.unreadable", "bundle.missing", "bundle.unreadable"}
    assert await world.record.store.due("schedule", limit=10) == [], "they are told of again, and not at once"
    await world.sync("zoneless")
    assert (await world.state(world.line("zoneless", MINUTELY, zone="Mars/Base"))).status == "retired"
    assert (await verify(world.record.pool, CATEGORIES)).ok


async def test_a_new_leader_looks_at_every_line_once(world: World) -> None:
    """What a line's next slot is may have changed with the time zone data since its wake was set."""
    await world.sync("pmo", {"cron": MINUTELY})
    line = world.line("pmo", MINUTELY)
    await world.record.store.move_wakes("schedule", [(line, 1, None)])
    schedules = Schedules(world.record.store, Publisher(world.buses[0], world.record.store))
    await schedules.keep()
    assert [due.stream_id for due in await world.record.store.due("schedule", limit=10)] == [line]
    await world.look()
    assert await world.record.pool.fetchval("select wake_at = next_at from schedule_heads")
    await schedules.keep()
    assert await world.record.store.due("schedule", limit=10) == []


_SERVICE: Final = """
import asyncio, sys
from uuid import UUID

from tests.support.postgres import Database
from tests.support.record import ListeningBus, open_record
from services.scheduler.app import build


async def main(app_dsn, owner_dsn, schedule_id):
    bus = ListeningBus()
    async with open_record(Database("", owner_dsn, app_dsn)) as record:
        service = build(await record.tools(bus, scheduler_tick_seconds=60.0))
        await service.start()
        await bus.wake("scheduler", "schedule", UUID(schedule_id))
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("place", ["append.before", "append.committed"])
async def test_a_kill_while_a_slot_is_fired_loses_and_doubles_no_run(world: World, place: str) -> None:
    await world.go_to(datetime(2027, 1, 4, 9, 0, 30, tzinfo=UTC))
    await world.sync("pmo", {"cron": "0 0 * * * *"})
    await world.go_to(datetime(2027, 1, 4, 10, 0, 1, tzinfo=UTC))
    database = world.record.database
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _SERVICE,
        database.app_dsn,
        database.owner_dsn,
        str(world.line("pmo", "0 0 * * * *")),
        cwd=Path(__file__).parents[2],
        env={**os.environ, VARIABLE: place},
        stdout=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(30):
            assert await process.wait() == -signal.SIGKILL
    finally:
        if process.returncode is None:
            process.kill()
    assert len(await world.slots()) == (place == "append.committed")
    await world.look(0, 1, 2)
    assert await world.slots() == ["2027-01-04T10:00:00+00:00"]


async def test_a_line_that_was_written_by_hand_is_only_as_good_as_its_text(world: World) -> None:
    """A corrupted fact concerns its own stream: loading, wakes and the lists of all others go on."""
    now = await world.record.store.now()
    schedule_id = uuid4()
    nonsense = ScheduleDeclared(at=now, definition_id="nobody", cron="not a line", every_seconds=None, timezone="UTC")
    await world.record.plant(schedule.CATEGORY, schedule_id, nonsense)
    await world.go_on(minutes=2)
    await world.look()
    assert await world.types(schedule_id) == ["declared", "retired"]
