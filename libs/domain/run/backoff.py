"""How long a failed step waits before its next attempt."""

import hashlib
from datetime import timedelta
from typing import Final
from uuid import UUID

BACKOFF_FIRST: Final = timedelta(seconds=2)
BACKOFF_MAX: Final = timedelta(minutes=5)
BACKOFF_JITTER: Final = 0.2
"""Share by which a delay varies, so that what failed together does not come back together."""


def backoff(stream_id: UUID, attempt: int) -> timedelta:
    """Return the delay after `attempt` (from 1): doubling, capped, with a jitter that the id alone decides."""
    plain: timedelta = min(BACKOFF_FIRST * 2.0 ** min(attempt - 1, 20), BACKOFF_MAX)
    drawn: float = int.from_bytes(hashlib.sha256(stream_id.bytes + attempt.to_bytes(4)).digest()[:4]) / 2**32
    return plain * (1 - BACKOFF_JITTER + 2 * BACKOFF_JITTER * drawn)
