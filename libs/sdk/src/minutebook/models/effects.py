"""What operators say of effects in doubt, and what is answered."""

from typing import Self
from uuid import UUID

from pydantic import ConfigDict, Field, model_validator

from minutebook.models.base import Sent, Shown
from minutebook.models.states import EffectState, SettleVerdict


class SettleRequest(Sent):
    """A verdict on an effect in doubt. `landed`: the record is there; `not_landed`: it is not, and the step failed;
    `try_again`: it is not, and the call is made once more.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"verdict": "landed", "arm": 0, "reference": "CORE-7", "comment": "Found in the tracker."}]
        }
    )

    verdict: SettleVerdict
    arm: int = Field(
        ge=0,
        description="the effect's `arm` when you looked at its target: the verdict is on that call alone; "
        "409 where another one is in doubt by now",
    )
    reference: str | None = Field(
        default=None, max_length=2_000, description="what the target calls the record; with `landed` alone"
    )
    comment: str | None = Field(default=None, max_length=20_000)

    @model_validator(mode="after")
    def _reference_of_a_record(self) -> Self:
        if self.reference is not None and self.verdict != "landed":
            raise ValueError("a reference is of a record that is there: leave it out, or say `landed`")
        return self


class EffectSettled(Shown):
    """How the effect stands now. `message` is what its target said, where it was asked."""

    effect_id: UUID
    run_id: UUID
    state: EffectState
    reference: str | None
    message: str | None = None
