"""Facts of one line of a definition's schedules. Written by the scheduler."""

from typing import Literal
from uuid import UUID

from contracts.base import Actor, Event, Instant
from contracts.registry import event


@event("schedule.declared")
class ScheduleDeclared(Event):
    """A version of the definition has this line: `cron` with its zone, or an interval from the end of the last run."""

    definition_id: str
    cron: str | None
    every_seconds: int | None
    timezone: str


@event("schedule.fired")
class ScheduleFired(Event):
    """The slot's run was born in the same statement. `slot` is the local time with its offset, `due_at` the moment."""

    slot: str
    due_at: Instant
    run_id: UUID


@event("schedule.skipped")
class ScheduleSkipped(Event):
    """`count` slots from `slot` on started nothing, for this reason."""

    slot: str
    due_at: Instant
    count: int
    reason: Literal["late", "overlap", "no_owner", "no_project", "context"]
    detail: str


@event("schedule.paused")
class SchedulePaused(Event):
    by: Actor


@event("schedule.resumed")
class ScheduleResumed(Event):
    """Slots of the pause are not made up for."""

    by: Actor


@event("schedule.retired")
class ScheduleRetired(Event):
    """The version that new runs take has no such line any more, or is disabled."""

    reason: str


ScheduleEvent = ScheduleDeclared | ScheduleFired | ScheduleSkipped | SchedulePaused | ScheduleResumed | ScheduleRetired
