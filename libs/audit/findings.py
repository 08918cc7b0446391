"""What a check of the record finds, in words that say what, where and how bad."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

Grade = Literal["tampered", "violated", "damaged", "unproven"]
"""How bad a finding is.

`tampered`: what was recorded is not what was recorded then, or is gone. `violated`: a rule of the record was broken.
`damaged`: what is derived disagrees with the history; `minutebook rebuild` mends it. `unproven`: it cannot be told
here.
"""

Part = Literal["chain", "content", "head", "snapshot", "seal", "ledger"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One place where the record is not what it should be. Details name no values: these may be private."""

    grade: Grade
    part: Part
    detail: str
    category: str | None = None
    stream_id: UUID | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "grade": self.grade,
            "part": self.part,
            "category": self.category,
            "stream_id": None if self.stream_id is None else str(self.stream_id),
            "detail": self.detail,
        }


Progress = Callable[[str, int], None]
"""Told now and then how far a long check has come: (what, how many)."""


def silent(_what: str, _done: int) -> None:
    """Tells nobody."""
