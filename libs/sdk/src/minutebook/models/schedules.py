"""Schedules as the API shows them."""

from uuid import UUID

from pydantic import AwareDatetime, Field

from minutebook.models.base import Shown
from minutebook.models.states import ScheduleState


class SlotView(Shown):
    """A moment at which a schedule starts a run."""

    at: AwareDatetime
    local: str = Field(description="the same moment in the schedule's zone, with its offset")


class ScheduleView(Shown):
    """One line of a definition's schedules."""

    schedule_id: UUID
    definition_id: str
    line: str = Field(description="six cron fields with seconds first, or `every N s`")
    timezone: str
    state: ScheduleState
    next: tuple[SlotView, ...] = Field(
        description="the firings to come, five at most; none while it is paused; of an interval the next one at most"
    )
    last_run: UUID | None = Field(description="the run that it started last")


class ScheduleChanged(Shown):
    schedule_id: UUID
    state: ScheduleState
