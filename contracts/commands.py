"""Commands: what one service asks another, `ask.<service>.<command>`. Only the api asks.

The door mints `command_id` and the ids of what is to be created, and reuses them when it asks again,
so a repeated command finds its own work done and gets the same answer.
"""

from typing import ClassVar
from uuid import UUID

from pydantic import Field, JsonValue

from contracts.base import Frozen, Instant, JsonObject, Principal, Sha256
from contracts.events.run import UserRef
from minutebook.models.states import DecisionOutcome, SettleVerdict


class ServerListing(Frozen):
    """What an MCP server said of its tools: name → JSON Schema of the arguments; or why it could not be asked."""

    tools: dict[str, JsonObject] | None = None
    unreachable: str | None = None


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
    variant: str | None = None


class RunToStart(Frozen):
    run_id: UUID
    context: JsonObject
    project_id: str | None = None
    variant: str | None = None


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


class CompleteStep(Command):
    """Complete a manual step with an artefact, as a holder of its role."""

    subject: ClassVar[str] = "ask.planner.complete_step"

    run_id: UUID
    step: str
    artifact: JsonValue
    comment: str | None = Field(default=None, max_length=20_000)


class RestartRun(Command):
    """Start a new run with the context of another one, on the version that new runs take now."""

    subject: ClassVar[str] = "ask.planner.restart_run"

    run_id: UUID
    new_run_id: UUID


class ForkRun(Command):
    """Start a new run from a point of another one's history.

    The point is `at_version`, or just before `from_step` began last; neither: the present. Steps that were finished
    there are inherited with their artefacts. `context` is laid over the old one, `artifacts` over the steps' own,
    `hash` names another version.
    """

    subject: ClassVar[str] = "ask.planner.fork_run"

    run_id: UUID
    new_run_id: UUID
    at_version: int | None = Field(default=None, ge=1)
    from_step: str | None = None
    context: JsonObject = Field(default_factory=dict)
    artifacts: dict[str, JsonValue] = Field(default_factory=dict)
    hash: Sha256 | None = None


class SyncDefinitions(Command):
    """Declare the files of a `definitions/` folder: path → text, paths relative to the folder, `/` between names.

    All problems of all files come back at once and nothing is stored; or everything is.
    """

    subject: ClassVar[str] = "ask.planner.sync_definitions"

    files: dict[str, str]
    canary_percent: int | None = Field(default=None, ge=1, le=99)
    listings: dict[str, ServerListing] = Field(default_factory=dict)


class InspectServers(Command):
    """Ask the MCP servers that a folder declares which tools they have, where they can be reached now."""

    subject: ClassVar[str] = "ask.effects.inspect_servers"

    files: dict[str, str]


class PromoteDefinition(Command):
    """Let every new run take a version that was declared before: the end of a canary, or the way back."""

    subject: ClassVar[str] = "ask.planner.promote_definition"

    definition_id: str
    hash: Sha256


class ReplayEvent(Command):
    """Route a recorded event again, by what is declared and waits now."""

    subject: ClassVar[str] = "ask.ingest.replay_event"

    inbound_id: UUID


class DeliverEvent(Command):
    """Hand a recorded event to a run's waiting step, whatever that step asks for."""

    subject: ClassVar[str] = "ask.ingest.deliver_event"

    inbound_id: UUID
    run_id: UUID
    step: str


class NoteDifferentBody(Command):
    """A delivery repeated an external id with another body. The principal is who delivered it."""

    subject: ClassVar[str] = "ask.ingest.note_different_body"

    inbound_id: UUID
    body_sha256: Sha256


class PauseSchedule(Command):
    subject: ClassVar[str] = "ask.scheduler.pause_schedule"

    schedule_id: UUID


class ResumeSchedule(Command):
    subject: ClassVar[str] = "ask.scheduler.resume_schedule"

    schedule_id: UUID


class AnswerDecision(Command):
    subject: ClassVar[str] = "ask.decision.answer"

    decision_id: UUID
    outcome: DecisionOutcome
    comment: str | None = Field(default=None, max_length=20_000)
    revised_artifact: JsonValue = None
    answer: JsonValue = None
    shown: Sha256 | None = None


class ReassignDecision(Command):
    """Let a user answer in the place of another, who has left or is away, or beside those who may."""

    subject: ClassVar[str] = "ask.decision.reassign"

    decision_id: UUID
    from_user: UUID | None = None
    to_user: UserRef
    reason: str | None = Field(default=None, max_length=2_000)


class SettleEffect(Command):
    """Say what became of an effect in doubt. `landed` may name the record's reference.

    `arm` says of which of its calls: one that is in doubt later, after a verdict to try again, needs a verdict anew.
    """

    subject: ClassVar[str] = "ask.effects.settle"

    effect_id: UUID
    verdict: SettleVerdict
    arm: int = Field(ge=0)
    reference: str | None = Field(default=None, max_length=2_000)
    comment: str | None = Field(default=None, max_length=20_000)


class ProbeEffect(Command):
    """Ask the target now whether an effect in doubt is there."""

    subject: ClassVar[str] = "ask.effects.probe"

    effect_id: UUID


class RetryNotice(Command):
    """Send a notice that failed or is in doubt once more."""

    subject: ClassVar[str] = "ask.effects.retry_notice"

    notice_id: UUID


class NoteFailingSource(Command):
    """Deliveries of a source are refused again and again. The principal is the door itself."""

    subject: ClassVar[str] = "ask.effects.note_failing_source"

    source_id: str
    reason: str
    refused: int
    since: Instant


COMMANDS: dict[str, type[Command]] = {
    c.subject: c
    for c in (
        StartRun,
        StartRuns,
        CancelRun,
        SuspendRun,
        ResumeRun,
        RetryStep,
        CompleteStep,
        RestartRun,
        ForkRun,
        SyncDefinitions,
        PromoteDefinition,
        ReplayEvent,
        DeliverEvent,
        NoteDifferentBody,
        PauseSchedule,
        ResumeSchedule,
        AnswerDecision,
        ReassignDecision,
        InspectServers,
        SettleEffect,
        ProbeEffect,
        RetryNotice,
        NoteFailingSource,
    )
}
