"""Something that is needed and does not answer: said once when it goes, and once when it is back."""

import time
from typing import Any

from libs.telemetry.logs import get_logger


class Outage:
    """What an operator reads of one dependency of one service, however many calls fail meanwhile."""

    def __init__(self, *, away: str, back: str, **fields: Any) -> None:
        """`away` and `back` are the two messages; `fields` stand in both."""
        self._away = away
        self._back = back
        self._log = get_logger("outage").bind(**fields)
        self._since: float | None = None

    def away(self, **fields: Any) -> None:
        """A call failed because of it."""
        if self._since is None:
            self._since = time.monotonic()
            self._log.warning(self._away, **fields)

    def back(self) -> None:
        """A call succeeded."""
        if self._since is not None:
            seconds = round(time.monotonic() - self._since, 1)
            self._since = None
            self._log.info(self._back, seconds=seconds)


__all__ = ["Outage"]
