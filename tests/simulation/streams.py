"""What the auditor keeps of one stream: all of it read from facts, so that a restored record takes it back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(slots=True)
class Stream:
    """Where a stream stands. `era` is that in which it began; of a fork, that of the run it goes back to.

    `opened_as` is which fact of all it began with; `told_as`, of a run, the last that says where nobody waits.
    """

    category: str
    era: int = 0
    state: str = "-"
    version: int = 0
    changed_at_seconds: float = 0.0
    digest: bytes = b""
    run_id: UUID | None = None
    claim: UUID | None = None
    lost_claims: set[UUID] = field(default_factory=set)
    shown: str | None = None
    asked: Any = None
    opened_as: int = 0
    told_as: int = 0
    voted: list[str] = field(default_factory=list)
    steps: dict[str, str] = field(default_factory=dict)
    moments: set[datetime] = field(default_factory=set)
    manual: set[str] = field(default_factory=set)
    taken: set[UUID] = field(default_factory=set)
    inherited: Mapping[str, UUID] = field(default_factory=dict)
    states: list[str] = field(default_factory=list)
    arm: int = 0
    pending: int = 0
    pending_at_seconds: float = 0.0
    over_at: datetime | None = None
    doubted_in: int = 0
    of: UUID | None = None
    tool: str = ""
    doubted: str | None = None
    writing: dict[str, UUID] = field(default_factory=dict)
    key: str = ""
    definition_id: str = ""
