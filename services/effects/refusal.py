"""Why a call cannot be made: nothing was sent."""

from dataclasses import dataclass

from minutebook.models.states import FailureClass


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the effect fails with, in words that say how to mend it."""

    failure_class: FailureClass
    message: str
