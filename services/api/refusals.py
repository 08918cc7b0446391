"""Deliveries that were refused as not authentic, counted by source, in memory: each replica counts its own."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from libs.clock import monotonic

FORGOTTEN_AFTER: Final = timedelta(hours=1)
"""A row of refusals is over when its last one is so old; and for so long nobody is told of the same source again."""

TOLD_LATER_AFTER: Final = timedelta(seconds=30)
"""When it is tried again to tell, where that failed."""


@dataclass(slots=True)
class _Row:
    """Refusals in a row. `quiet_until` is when people may be told again."""

    refused: int = 0
    began: float = 0.0
    last: float = 0.0
    quiet_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Failing:
    """So many in a row, the first so long ago."""

    refused: int
    since: timedelta


class Refusals:
    """Only declared sources are counted, so there are few."""

    def __init__(self, *, in_a_row_max: int) -> None:
        self._in_a_row_max = in_a_row_max
        self._rows: dict[str, _Row] = {}

    def taken(self, source_id: str) -> None:
        """A delivery was authentic: the row is over."""
        if (row := self._rows.get(source_id)) is not None:
            row.refused = 0

    def refused(self, source_id: str) -> Failing | None:
        """Count a refusal; says when people should be told of the source, which is then told of for a while."""
        now, row = monotonic(), self._rows.setdefault(source_id, _Row())
        if row.refused == 0 or now - row.last > FORGOTTEN_AFTER.total_seconds():
            row.refused, row.began = 0, now
        row.refused += 1
        row.last = now
        if row.refused < self._in_a_row_max or now < row.quiet_until:
            return None
        row.quiet_until = now + FORGOTTEN_AFTER.total_seconds()
        return Failing(refused=row.refused, since=timedelta(seconds=now - row.began))

    def untold(self, source_id: str) -> None:
        """Telling failed: try again at a later refusal."""
        self._rows[source_id].quiet_until = monotonic() + TOLD_LATER_AFTER.total_seconds()
