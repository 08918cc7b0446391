"""How a try ends, by every way alike."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sent:
    """The other side took it."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """It surely was not taken; `final` when no later try could do better."""

    reason: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """It may have been taken."""

    reason: str


Outcome = Sent | NotSent | Lost
