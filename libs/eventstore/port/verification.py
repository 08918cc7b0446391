"""What there is to say about a record that was verified."""

from dataclasses import dataclass
from typing import Literal
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where the record does not agree with itself."""

    category: str
    stream_id: UUID
    kind: Literal["chain", "content", "head", "missing_head", "missing_events", "snapshot"]
    detail: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` saw."""

    streams: int
    events: int
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        return not self.differences
