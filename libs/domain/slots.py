"""Lines of schedules as text, and the slots that they have. Reading never raises: a line may outlive its zone."""

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo

from libs.language.cron import Cron, Slot


def line_of(cron: str | None, every_seconds: int | None, timezone: str) -> str:
    """A line as text, its zone included. It names the line in ids and trigger keys, so it must never change."""
    return f"{cron} {timezone}" if cron is not None else f"every {every_seconds} s {timezone}"


def trigger_key(line: str, slot: str) -> str:
    """What makes a scheduled run unique for its definition."""
    return f"schedule:{line}:{slot}"


@dataclass(frozen=True, slots=True)
class Line:
    """A cron line that could be read, on the clock of its zone."""

    cron: Cron
    zone: ZoneInfo

    def next(self, after: datetime) -> Slot:
        return self.cron.after(after, self.zone)

    def upcoming(self, count: int, after: datetime) -> tuple[Slot, ...]:
        return self.cron.next_slots(count, after=after, zone=self.zone)

    def due(self, after: datetime, until: datetime, *, limit: int) -> tuple[Slot, ...]:
        """The slots after one moment and up to another, in order; of more than `limit` the first."""
        found: list[Slot] = []
        slot = self.next(after)
        while slot.due_at <= until and len(found) < limit:
            found.append(slot)
            slot = self.next(slot.due_at)
        return tuple(found)


@lru_cache(maxsize=1_000)
def read(cron: str, timezone: str) -> Line | None:
    """A cron line and its zone; None when one of them cannot be read."""
    zone = zone_of(timezone)
    try:
        return None if zone is None else Line(Cron.parse(cron), zone)
    except ValueError:
        return None


def moment(due_at: datetime, timezone: str) -> Slot:
    """A moment as its zone's clock shows it, in UTC where that cannot be read."""
    return Slot(due_at.astimezone(zone_of(timezone) or ZoneInfo("UTC")).isoformat(timespec="seconds"), due_at)


def zone_of(name: str) -> ZoneInfo | None:
    """A time zone, None when this installation's data does not have it."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
