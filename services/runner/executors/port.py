"""The port of the executors: what a runner gives one, and what it may answer."""

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable
from uuid import UUID

from contracts.base import JsonObject, Microdollars
from contracts.events.attempt import Usage
from contracts.requests import AttemptRequest
from minutebook.models.states import FailureClass

OUTPUT_BYTES_MAX: Final = 1024 * 1024
"""Size of an output as canonical JSON. A larger one is `output_invalid`."""

NO_USAGE: Final = Usage()


@dataclass(frozen=True, slots=True)
class Scope:
    """Which attempt a call is made for, and under which claim."""

    attempt_id: UUID
    claim: UUID


@dataclass(frozen=True, slots=True)
class Produced:
    """An output that fits the request's schema, and what it cost."""

    output: JsonObject
    usage: Usage = NO_USAGE
    cost_microdollars: Microdollars = 0
    model: str | None = None
    turns: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no output. What was spent until then is kept."""

    failure_class: FailureClass
    message: str
    usage: Usage = NO_USAGE
    cost_microdollars: Microdollars = 0
    model: str | None = None
    turns: int = 0


class Executor(Protocol):
    """One way to carry out an agent step. `name` is what the step's `agent` key names."""

    @property
    def name(self) -> str: ...

    async def execute(self, request: AttemptRequest, *, scope: Scope) -> Produced | Failure:
        """Carry out one attempt.

        Ends by itself within `deadline_seconds`, stays within `budget_microdollars`, and answers `Produced` only
        for an output that fits the schema. Expected trouble is a `Failure`; what is raised is a bug. May be
        cancelled at any moment, and then leaves nothing running behind.
        """
        ...

    async def close(self) -> None:
        """Give back what the executor holds. Nothing is executed any more."""
        ...


@runtime_checkable
class AtOnce(Protocol):
    """What an executor may be beside `Executor`: one that needs to wait for nothing, at least for some requests."""

    def at_once(self, request: AttemptRequest) -> Produced | Failure | None:
        """Return what `execute` would, or None where that has to wait for something.

        Touches nothing outside this process: it is called before the attempt's start is recorded.
        """
        ...
