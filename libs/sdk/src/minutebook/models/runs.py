"""Runs as the API shows them: the state that their history adds up to."""

from typing import Literal
from uuid import UUID

from pydantic import AwareDatetime, ConfigDict, Field, JsonValue

from minutebook.models.base import ActorView, JsonObject, Microdollars, Person, Sent, Shown
from minutebook.models.problem import Problem
from minutebook.models.states import (
    ArtifactState,
    AttemptState,
    DecisionOutcome,
    EffectState,
    FailureClass,
    RunOutcome,
    RunState,
    SettleVerdict,
    StepKind,
    StepState,
    TriggerKind,
)
from minutebook.models.waiting import WaitingFor

START_RUNS_MAX = 500
"""Runs that can be started by one request."""


class StartRunRequest(Sent):
    """What a run begins with."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"context": {"jira_key": "CORE-142"}, "project_id": "core"}]}
    )

    context: JsonObject = Field(
        default_factory=dict, description="values that prompts and writes may use; a definition names the required ones"
    )
    project_id: str | None = Field(
        default=None, max_length=200, description="key of the project that it is filed under"
    )
    variant: str | None = Field(default=None, max_length=64, description="one of the definition's variants")


class StartRunItem(StartRunRequest):
    """One run of many that are started together."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"context": {"jira_key": "CORE-142"}, "idempotency_key": "CORE-142"}]}
    )

    idempotency_key: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="the same key of the same caller is the same run, however it is started",
    )


class StartRunsRequest(Sent):
    """Runs of one definition, each of which is started or refused by itself."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"items": [{"context": {"jira_key": "CORE-142"}, "project_id": "core"}]}]}
    )

    items: tuple[StartRunItem, ...] = Field(min_length=1, max_length=START_RUNS_MAX)


class ReasonRequest(Sent):
    """Why, for the record."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "frozen until Monday"}]})

    reason: str | None = Field(default=None, min_length=1, max_length=2_000)


class RunChanged(Shown):
    """A run after a command. `version` counts its facts."""

    run_id: UUID
    state: RunState
    version: int


class RunStarted(Shown):
    """What became of one of many starts: exactly one of the two is set."""

    run: RunChanged | None = None
    problem: Problem | None = None


class RunsStarted(Shown):
    """What became of many starts, in the order in which they were sent."""

    items: tuple[RunStarted, ...]


class RunSummary(Shown):
    """A run as lists show it."""

    run_id: UUID
    definition_id: str
    definition_hash: str
    state: RunState
    stage: str | None
    outcome: RunOutcome | None
    reason: str | None = Field(description="why it failed, was suspended or cancelled")
    project_id: str | None
    initiated_by: Person
    created_at: AwareDatetime
    finished_at: AwareDatetime | None
    cost_microdollars: Microdollars
    variant: str | None = None
    parent: UUID | None = Field(default=None, description="the run that this one restarts or was forked from")


class TriggerView(Shown):
    """What started a run."""

    kind: TriggerKind
    key: str | None = Field(description="unique per definition: what makes a repeated start the same run")
    source: str | None
    event_id: UUID | None = Field(default=None, description="the inbound event")
    slot: str | None = Field(default=None, description="the local time of the schedule's slot")


class UsageView(Shown):
    """Tokens as the provider counted them."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int


class AttemptView(Shown):
    """One execution of a step."""

    attempt_id: UUID
    round: int
    number: int = Field(description="counts from 1 within the round")
    state: AttemptState
    executor: str
    queued_at: AwareDatetime
    started_at: AwareDatetime | None
    finished_at: AwareDatetime | None
    model: str | None
    turns: int
    usage: UsageView
    cost_microdollars: Microdollars
    leases_lost: int
    failure_class: FailureClass | None
    message: str | None


class StepView(Shown):
    """Where a step stands. Its branches follow it as `<step>.<branch>`, its items as `<step>.<index>` from 0."""

    key: str
    name: str | None
    kind: StepKind
    stage: str
    state: StepState
    round: int
    loops: int = Field(description="how often this step's gate or decision sent the run back")
    outcome: DecisionOutcome | None
    artifact_state: ArtifactState | None
    failure_class: FailureClass | None
    message: str | None
    retry_at: AwareDatetime | None = Field(description="when it is tried again, after a failure")
    begins_at: AwareDatetime | None = Field(default=None, description="when it begins, while its `wait` lasts")
    cost_microdollars: Microdollars
    attempts: tuple[AttemptView, ...] = Field(
        description="every execution in all rounds, oldest first; of a run with over 500 those of the current round"
    )


class SettledView(Shown):
    """What settled an effect that was in doubt: a person's verdict, or what its target shows."""

    verdict: SettleVerdict
    source: Literal["operator", "probe"]
    by: ActorView
    at: AwareDatetime
    comment: str | None = None


class EffectView(Shown):
    """One write to the outside world, made at most once."""

    effect_id: UUID
    kind: Literal["write", "back_link"] = Field(
        default="write", description="a back-link tells a target which run a record of it was written by"
    )
    of: UUID | None = Field(default=None, description="the write that a back-link belongs to")
    run_id: UUID
    step: str
    key: str = Field(description="unique in its run")
    system: str
    tool: str
    state: EffectState
    reference: str | None = Field(description="what the target calls the record")
    failure_class: FailureClass | None
    message: str | None
    arguments: JsonValue = None
    declared_at: AwareDatetime
    changed_at: AwareDatetime
    over_at: AwareDatetime | None = Field(
        default=None, description="from when on the last call cannot be under way anywhere; no verdict is taken before"
    )
    arm: int = Field(default=0, description="how often it was armed to be called again; a verdict names it")
    doubted_at: AwareDatetime | None = Field(
        default=None, description="since when its last call is in doubt; null unless it is"
    )
    looks: int = Field(default=0, description="how often the target was asked whether the write in doubt is there")
    looked_at: AwareDatetime | None = Field(default=None, description="when it was asked last")
    settled: SettledView | None = Field(default=None, description="the verdict that was recorded last")


class RunView(RunSummary):
    """A run with everything that a person wants to know of it."""

    version: int
    definition_name: str
    trigger: TriggerView
    context: JsonObject
    failure_class: FailureClass | None
    worked_seconds: float = Field(description="time spent working; waiting for a person does not count")
    steps: tuple[StepView, ...] = Field(description="every step of the definition, in order, reached or not")
    waiting_for: tuple[WaitingFor, ...] = Field(description="what it waits for now; nothing while it works")
    forks: tuple[UUID, ...] = Field(default=(), description="runs that restart or go on from this one, oldest first")
    effects: tuple[EffectView, ...]
    back_links: tuple[EffectView, ...] = Field(
        default=(), description="what targets were told about this run, once its writes stood"
    )


class HistoryEntry(Shown):
    """One fact of a run, or of an attempt, a decision, a wait or an effect of it."""

    stream: Literal["run", "attempt", "decision", "wait", "effect"]
    stream_id: UUID
    version: int = Field(description="counts the facts of its stream from 1")
    type: str = Field(description="for example `decision.answered`")
    at: AwareDatetime
    actor: ActorView
    text: str = Field(description="the fact in words")
    data: JsonObject = Field(description="the fact itself")
    digest: str = Field(description="SHA-256 that chains this fact to the one before it in its stream")


class ArtifactView(Shown):
    """What a step handed off: as it was proposed, and as it was approved."""

    run_id: UUID
    step: str
    state: ArtifactState
    revised: bool = Field(description="whether a person replaced it on approval")
    proposed: JsonValue = None
    proposed_digest: str | None = None
    approved: JsonValue = None
    approved_digest: str | None = None
