"""Commands: what one service asks another, `ask.<service>.<command>`. Only the api asks.

The door mints `command_id` and the ids of what is to be created, and reuses them when it asks again,
so a repeated command finds its own work done and gets the same answer.
"""

from typing import ClassVar
from uuid import UUID

from pydantic import Field, JsonValue

from contracts.base import Frozen, Instant, JsonObject, Principal
from minutebook.models.states import DecisionOutcome


class Command(Frozen):
    """An ask. It is refused after `deadline`, so a late one cannot surprise a caller that gave up."""

    subject: ClassVar[str]

    command_id: UUID
    deadline: Instant
    principal: Principal
    traceparent: str | None = None


class StartRun(Command):
    subject: ClassVar[str] = "ask.planner.start_run"

    run_id: UUID
    definition_id: str
    context: JsonObject
    project_id: str | None = None


class RunToStart(Frozen):
    run_id: UUID
    context: JsonObject
    project_id: str | None = None


class StartRuns(Command):
    """Start many runs of one definition. Each is answered by itself, as if it had been asked alone."""

    subject: ClassVar[str] = "ask.planner.start_runs"

    definition_id: str
    runs: tuple[RunToStart, ...] = Field(min_length=1, max_length=500)


class CancelRun(Command):
    subject: ClassVar[str] = "ask.planner.cancel_run"

    run_id: UUID
    reason: str = "cancelled by request"


class SuspendRun(Command):
    subject: ClassVar[str] = "ask.planner.suspend_run"

    run_id: UUID
    reason: str = "suspended by request"


class ResumeRun(Command):
    subject: ClassVar[str] = "ask.planner.resume_run"

    run_id: UUID


class RetryStep(Command):
    """Try a failed step of a suspended or failed run once more."""

    subject: ClassVar[str] = "ask.planner.retry_step"

    run_id: UUID
    step: str


class SyncDefinitions(Command):
    """Declare the files of a `definitions/` folder: path → text, paths relative to the folder, `/` between names.

    All problems of all files come back at once and nothing is stored; or everything is.
    """

    subject: ClassVar[str] = "ask.planner.sync_definitions"

    files: dict[str, str]


class AnswerDecision(Command):
    subject: ClassVar[str] = "ask.decision.answer"

    decision_id: UUID
    outcome: DecisionOutcome
    comment: str | None = Field(default=None, max_length=20_000)
    revised_artifact: JsonValue = None


COMMANDS: dict[str, type[Command]] = {
    c.subject: c
    for c in (StartRun, StartRuns, CancelRun, SuspendRun, ResumeRun, RetryStep, SyncDefinitions, AnswerDecision)
}
