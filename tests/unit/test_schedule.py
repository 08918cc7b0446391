"""Given facts, when the clock moves, then what a line of a definition's schedules starts."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest

from contracts import ids
from contracts.base import BlobRef, Event, Principal
from contracts.errors import Rejected
from contracts.events.definition import DefinitionSynced, ScheduleTrigger
from contracts.events.run import RunCreated, Trigger, UserRef
from contracts.events.schedule import (
    ScheduleDeclared,
    ScheduleFired,
    SchedulePaused,
    ScheduleRetired,
    ScheduleSkipped,
)
from libs.domain import lifecycle
from libs.domain.access import ADMINISTRATOR
from libs.domain.core import NOTHING, Decided
from libs.domain.schedule import (
    CATEGORY,
    LATE_AFTER,
    LOOK_AGAIN,
    SLOTS_PER_LOOK_MAX,
    STARTS_PER_LOOK_MAX,
    Command,
    Declare,
    Known,
    LastRun,
    Look,
    Pause,
    Resume,
    Retire,
    State,
    decide,
    due_again,
    trigger_of,
)
from libs.domain.slots import line_of, read

NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
GROUP = uuid4()
OWNER = UserRef(id=uuid4(), email="workflows@example.com")
ADMIN = Principal(
    kind="user",
    id=uuid4(),
    name="ada@example.com",
    tenant_group=GROUP,
    tenant=uuid4(),
    roles=frozenset({ADMINISTRATOR}),
)
OPEN = LastRun(is_open=True)


@dataclass
class Line:
    """A line, the definition that has it, and a clock."""

    cron: str | None = "0 0 7 * * 1"
    every_seconds: int | None = None
    timezone: str = "UTC"
    overlap: str = "skip"
    now: datetime = NOW
    state: State = field(default_factory=State)
    last_run: LastRun | None = None
    births: list[tuple[UUID, RunCreated]] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.do(Declare("pmo", self.cron, self.every_seconds, self.timezone))

    def known(self, **changes: Any) -> Known:
        trigger = ScheduleTrigger.model_validate(
            {
                "cron": self.cron,
                "every_seconds": self.every_seconds,
                "timezone": self.timezone,
                "overlap": self.overlap,
                "run_as": OWNER.email,
                "project": "core",
            }
        )
        version = DefinitionSynced(
            at=NOW,
            definition_id="pmo",
            name="PMO",
            hash="a" * 64,
            bundle=BlobRef(digest="1" * 64, bytes=2),
            enabled=True,
            event_triggers=(),
            required_context=(),
            schedules=(trigger,),
        )
        known = Known(GROUP, version, trigger, owner=OWNER, last_run=self.last_run)
        return replace(known, **changes)

    def do(self, command: Command) -> Decided:
        decided = decide(command, self.state, self.now)
        for event in decided.events:
            before, self.state = self.state.status, CATEGORY.evolve(self.state, event)
            if self.state.status != before:
                assert self.state.status in lifecycle.SCHEDULE[before]
        for birth in decided.births:
            assert isinstance(birth.event, RunCreated)
            self.births.append((birth.stream_id, birth.event))
        return decided

    def look(self, **changes: Any) -> tuple[Event, ...]:
        return self.do(Look(uuid4(), self.known(**(self.changes | changes)))).events

    def at(self, text: str, **changes: Any) -> tuple[Event, ...]:
        self.now = datetime.fromisoformat(text)
        return self.look(**changes)

    @property
    def wake_at(self) -> datetime | None:
        return CATEGORY.wake_at(self.state, self.now)

    def run_on(self, until: datetime) -> None:
        """Look whenever the line asks for it, as the clock would."""
        while (wake_at := self.wake_at) is not None and wake_at <= until:
            self.now = max(self.now, wake_at)
            self.look()
        self.now = until

    @property
    def slots(self) -> list[str]:
        return [str(created.trigger.slot) for _, created in self.births]


def test_a_slot_starts_one_run_that_says_what_it_is_of() -> None:
    line = Line()
    assert line.wake_at == datetime(2026, 11, 9, 7, 0, tzinfo=UTC), "Monday, 07:00:00"
    assert line.at("2026-11-09T06:59:59+00:00") == ()
    (fired,) = line.at("2026-11-09T07:00:00.2+00:00")
    assert isinstance(fired, ScheduleFired)
    ((run_id, created),) = line.births
    key = "schedule:0 0 7 * * 1 UTC:2026-11-09T07:00:00+00:00"
    assert run_id == fired.run_id == ids.triggered_run(GROUP, "pmo", key)
    assert (created.initiated_by, created.project_id, created.hash) == (OWNER, "core", "a" * 64)
    assert created.trigger.model_copy(update={"schedule_id": None}) == Trigger(
        kind="schedule", key=key, slot="2026-11-09T07:00:00+00:00"
    )
    assert line.look() == (), "each slot once"
    assert line.wake_at == datetime(2026, 11, 16, 7, 0, tzinfo=UTC)
    assert CATEGORY.columns(line.state) == {
        "definition_id": "pmo",
        "line": "0 0 7 * * 1",
        "timezone": "UTC",
        "next_at": line.wake_at,
        "last_run": run_id,
    }


@pytest.mark.parametrize(
    ("day", "minutes"),
    [("2026-03-29", 23 * 60), ("2026-10-25", 25 * 60), ("2026-03-30", 24 * 60)],
)
def test_every_minute_of_a_day_on_which_the_clock_is_changed_starts_one_run(day: str, minutes: int) -> None:
    begin = datetime.fromisoformat(f"{day}T00:00:00+00:00") - timedelta(hours=3)
    line = Line("0 * * * * *", timezone="Europe/Berlin", overlap="allow", now=begin)
    line.run_on(begin + timedelta(hours=30))
    of_that_day = [slot for slot in line.slots if slot.startswith(day)]
    assert len(of_that_day) == len(set(of_that_day)) == minutes
    assert len({run_id for run_id, _ in line.births}) == len(line.births)
    moments = sorted(datetime.fromisoformat(slot) for slot in line.slots)
    assert {later - earlier for earlier, later in pairwise(moments)} == {timedelta(minutes=1)}


@pytest.mark.parametrize(
    ("begin", "slots"),
    [
        (
            "2026-03-27T12:00:00+00:00",
            ["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
        ),
        (
            "2026-10-23T12:00:00+00:00",
            ["2026-10-24T02:30:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"],
        ),
    ],
)
def test_an_appointment_at_half_past_two_is_kept_once_a_day(begin: str, slots: list[str]) -> None:
    line = Line("0 30 2 * * *", timezone="Europe/Berlin", now=datetime.fromisoformat(begin))
    line.run_on(line.now + timedelta(days=3))
    assert line.slots == slots


def test_slots_that_nobody_saw_for_ten_minutes_are_one_fact_and_the_rest_is_made_up_for() -> None:
    line = Line("0 * * * * *", overlap="allow")
    skipped, *fired = line.at("2026-11-02T12:00:30+00:00")
    assert isinstance(skipped, ScheduleSkipped)
    assert (skipped.slot, skipped.reason, skipped.count) == ("2026-11-02T09:01:00+00:00", "late", 170)
    assert skipped.due_at == datetime(2026, 11, 2, 11, 50, tzinfo=UTC)
    assert line.slots == [f"2026-11-02T11:{minute}:00+00:00" for minute in range(51, 60)] + [
        "2026-11-02T12:00:00+00:00"
    ]
    assert len(fired) == 10


def test_a_slot_of_exactly_ten_minutes_is_in_time() -> None:
    line = Line()
    assert isinstance(line.at("2026-11-09T07:10:00+00:00")[0], ScheduleFired)
    assert isinstance(line.at("2026-11-16T07:10:00.001+00:00")[0], ScheduleSkipped)


def test_a_year_of_missed_slots_is_counted_in_steps_and_no_more_than_a_hundred_start_at_once() -> None:
    line = Line("* * * * * *", overlap="allow")
    line.now += timedelta(seconds=SLOTS_PER_LOOK_MAX) + LATE_AFTER
    counts, starts = [], []
    while (wake_at := line.wake_at) is not None and wake_at <= line.now:
        events = line.look()
        counts += [event.count for event in events if isinstance(event, ScheduleSkipped)]
        starts.append(sum(isinstance(event, ScheduleFired) for event in events))
    late = LATE_AFTER // timedelta(seconds=1)
    assert counts == [SLOTS_PER_LOOK_MAX - 1]
    assert max(starts) == STARTS_PER_LOOK_MAX
    assert sum(starts) == late + 1
    line.now += 3 * timedelta(seconds=SLOTS_PER_LOOK_MAX)
    (skipped,) = line.look()
    assert isinstance(skipped, ScheduleSkipped)
    assert skipped.count == SLOTS_PER_LOOK_MAX
    assert line.wake_at is not None
    assert line.wake_at < line.now


def test_a_slot_whose_run_before_is_open_is_skipped() -> None:
    line = Line("0 * * * * *")
    assert isinstance(line.at("2026-11-02T09:01:00+00:00")[0], ScheduleFired)
    line.last_run = OPEN
    (skipped,) = line.at("2026-11-02T09:02:00+00:00")
    assert isinstance(skipped, ScheduleSkipped)
    assert (skipped.reason, skipped.count) == ("overlap", 1)
    line.last_run = LastRun(is_open=False, ended_at=line.now)
    fired, skipped = line.at("2026-11-02T09:05:00+00:00")
    assert isinstance(fired, ScheduleFired)
    assert fired.slot == "2026-11-02T09:03:00+00:00"
    assert isinstance(skipped, ScheduleSkipped)
    assert (skipped.slot, skipped.count, skipped.reason) == ("2026-11-02T09:04:00+00:00", 2, "overlap")
    assert len(line.slots) == 2


def test_a_line_that_allows_overlap_does_not_ask() -> None:
    line = Line("0 * * * * *", overlap="allow", last_run=OPEN)
    line.run_on(NOW + timedelta(minutes=5))
    assert len(line.slots) == 5


@pytest.mark.parametrize(
    ("reason", "changes", "word"),
    [
        ("no_owner", {"owner": None}, "`run_as` of pmo"),
        ("no_project", {"has_project": False}, "'core'"),
        ("context", {"context": {"jira_key": None}}, "jira_key"),
    ],
)
def test_a_slot_that_cannot_start_is_skipped_and_the_next_one_tried(
    reason: str, changes: dict[str, Any], word: str
) -> None:
    line = Line("0 * * * * *")
    known = line.known(**changes)
    assert known.version is not None
    changes["version"] = known.version.model_copy(update={"required_context": ("jira_key",)})
    changes = {"context": {"jira_key": "CORE-1"}, **changes}
    (skipped,) = line.at("2026-11-02T09:02:30+00:00", **changes)
    assert isinstance(skipped, ScheduleSkipped)
    assert (skipped.reason, skipped.count) == (reason, 2)
    assert word in skipped.detail
    mended = {"owner": OWNER, "has_project": True, "context": {"jira_key": "CORE-1"}}
    assert isinstance(line.at("2026-11-02T09:03:00+00:00", **(changes | mended))[0], ScheduleFired)
    assert line.births[0][1].context == {"jira_key": "CORE-1"}


def test_an_interval_counts_from_the_end_of_the_last_run() -> None:
    line = Line(None, every_seconds=300, timezone="Europe/Berlin")
    assert line.wake_at == NOW + timedelta(seconds=300)
    assert line.at("2026-11-02T09:04:59+00:00") == ()
    (fired,) = line.at("2026-11-02T09:05:00.5+00:00")
    assert isinstance(fired, ScheduleFired)
    assert (fired.slot, fired.due_at) == ("2026-11-02T10:05:00+01:00", NOW + timedelta(seconds=300))
    line.last_run = OPEN
    assert line.at("2026-11-02T09:30:00+00:00") == (), "never two at once"
    assert line.wake_at == line.now + LOOK_AGAIN
    assert due_again(line.state, OPEN) is None
    line.last_run = LastRun(is_open=False, ended_at=datetime(2026, 11, 2, 9, 40, tzinfo=UTC))
    assert due_again(line.state, line.last_run) == datetime(2026, 11, 2, 9, 45, tzinfo=UTC)
    assert line.at("2026-11-02T09:44:59+00:00") == ()
    (fired,) = line.at("2026-11-02T13:00:00+00:00")
    assert isinstance(fired, ScheduleFired), "an outage makes it late, and loses nothing"
    assert fired.slot == "2026-11-02T10:45:00+01:00"
    assert len({run_id for run_id, _ in line.births}) == 2


def test_an_interval_that_cannot_start_tries_again_after_as_long() -> None:
    line = Line(None, every_seconds=300)
    (skipped,) = line.at("2026-11-02T09:05:00+00:00", owner=None)
    assert isinstance(skipped, ScheduleSkipped)
    assert line.wake_at == NOW + timedelta(seconds=600)


def test_slots_of_a_pause_are_not_made_up_for() -> None:
    line = Line("0 * * * * *")
    (paused,) = line.do(Pause(ADMIN)).events
    assert paused == SchedulePaused(at=NOW, by=ADMIN.actor)
    assert line.do(Pause(ADMIN)) == NOTHING
    assert line.wake_at is None
    assert line.at("2026-11-02T09:05:30+00:00") == ()
    line.do(Resume(ADMIN))
    assert line.do(Resume(ADMIN)) == NOTHING
    assert line.look() == ()
    assert line.wake_at == datetime(2026, 11, 2, 9, 6, tzinfo=UTC)


def test_who_may_not_change_a_line_is_told_why() -> None:
    line = Line()
    clerk = ADMIN.model_copy(update={"roles": frozenset({"developer"})})
    for command, state, code, status in (
        (Pause(clerk), line.state, "schedule.not_yours", 403),
        (Resume(ADMIN), State(), "schedule.not_found", 404),
        (Pause(ADMIN), replace(line.state, status="retired"), "schedule.retired", 409),
    ):
        with pytest.raises(Rejected) as rejected:
            decide(command, state, NOW)
        assert (rejected.value.code, rejected.value.status) == (code, status)


def test_a_line_that_its_version_lost_is_retired_and_comes_back_as_it_was() -> None:
    line = Line("0 * * * * *")
    line.do(Pause(ADMIN))
    (retired,) = line.do(Retire("gone")).events
    assert retired == ScheduleRetired(at=NOW, reason="gone")
    assert line.do(Retire("gone")) == NOTHING
    line.now += timedelta(hours=5)
    declare = Declare("pmo", "0 * * * * *", None, "UTC")
    declared, paused = line.do(declare).events
    assert isinstance(declared, ScheduleDeclared)
    assert paused == SchedulePaused(at=line.now, by=ADMIN.actor), "nobody resumed it"
    assert line.do(declare) == NOTHING
    line.do(Resume(ADMIN))
    assert line.look() == ()


def test_a_look_at_a_line_that_its_version_does_not_have_retires_it() -> None:
    for changes, word in (({"version": None}, "no version"), ({"trigger": None}, "no such line")):
        line = Line()
        (retired,) = line.look(**changes)
        assert isinstance(retired, ScheduleRetired)
        assert word in retired.reason
        assert line.wake_at is None
    version = line.known().version
    assert version is not None
    text = line_of("0 0 7 * * 1", None, "UTC")
    assert trigger_of(version, text) == version.schedules[0]
    assert trigger_of(version, line_of("0 0 7 * * 1", None, "Europe/Berlin")) is None
    assert trigger_of(version.model_copy(update={"enabled": False}), text) is None


@pytest.mark.parametrize(("cron", "zone"), [("0 0 7 * * 1", "Mars/Base"), ("99 nonsense", "UTC")])
def test_a_line_that_cannot_be_read_says_so_and_folds(cron: str, zone: str) -> None:
    line = Line(cron, timezone=zone)
    assert CATEGORY.columns(line.state)["next_at"] is None
    assert line.wake_at == NOW + LOOK_AGAIN
    assert read(cron, zone) is None
    with pytest.raises(Rejected) as rejected:
        line.look()
    assert rejected.value.code == "schedule.unreadable"
    line.do(Retire("gone"))
    assert line.state.status == "retired"


def test_the_next_five_firings_are_told() -> None:
    line = read("0 30 2 * * *", "Europe/Berlin")
    assert line is not None
    assert [slot.local for slot in line.upcoming(5, datetime(2026, 10, 23, 12, 0, tzinfo=UTC))] == [
        "2026-10-24T02:30:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
        "2026-10-27T02:30:00+01:00",
        "2026-10-28T02:30:00+01:00",
    ]
