"""Something that is needed and does not answer: said once when it goes, and once when it is back."""

import time
from collections.abc import Callable
from typing import Any, Final

from libs.telemetry.logs import get_logger

QUIET_SECONDS: Final = 1.0
"""How long nothing must have failed for it to be back: some calls still succeed while it goes."""


class Outage:
    """What an operator reads of one dependency of one service, however many calls fail meanwhile."""

    def __init__(
        self,
        *,
        away: str,
        back: str,
        quiet_seconds: float = QUIET_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        **fields: Any,
    ) -> None:
        """`away` and `back` are the two messages; `fields` stand in both."""
        self._quiet_seconds = quiet_seconds
        self._clock = clock
        self._away = away
        self._back = back
        self._log = get_logger("outage").bind(**fields)
        self._since: float | None = None
        self._failed_at = 0.0
        self._succeeded = False

    @property
    def lasting(self) -> bool:
        """Whether it is away, as far as is known: only another call can tell."""
        return self._since is not None

    def away(self, **fields: Any) -> None:
        """A call failed because of it."""
        self._failed_at = self._clock()
        self._succeeded = False
        if self._since is None:
            self._since = self._failed_at
            self._log.warning(self._away, **fields)

    def back(self) -> None:
        """A call succeeded."""
        self._succeeded = True
        self.look()

    def look(self) -> None:
        """Say that it is back once the quiet has passed, though no call may come any more to say it with."""
        if self._since is not None and self._succeeded and self._clock() - self._failed_at >= self._quiet_seconds:
            seconds = round(self._failed_at - self._since, 1)
            self._since = None
            self._log.info(self._back, seconds=seconds)


__all__ = ["Outage"]
