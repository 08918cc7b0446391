"""Definitions as the API shows them."""

from typing import Literal

from pydantic import AwareDatetime, ConfigDict, Field, JsonValue

from minutebook.models.base import ActorView, JsonObject, Sent, Shown
from minutebook.models.operations import HASH_PATTERN
from minutebook.models.runs import RunSummary
from minutebook.models.states import DecisionOutcome, StepKind, TriggerKind


class SyncRequest(Sent):
    """The files of a `definitions/` folder, by path from it. All of it is stored, or nothing."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "files": {
                        "workflows/hello/workflow.yaml": "workflow:\n  id: hello\n  name: Hello\n",
                        "workflows/hello/prompts/hello.md": "Say hello.\n",
                    }
                }
            ]
        }
    )

    files: dict[str, str]
    canary_percent: int | None = Field(
        default=None,
        ge=1,
        le=99,
        description="of changed workflows: the share of new runs that take the new version until one is promoted",
    )


class SyncedView(Shown):
    kind: Literal["workflow", "source", "server", "channel"]
    id: str
    hash: str
    changed: bool


class SyncResult(Shown):
    """What stands now, and what of it is new."""

    synced: tuple[SyncedView, ...]
    warnings: tuple[str, ...] = Field(
        default=(), description="what could not be checked, such as the tools of a server that did not answer"
    )


class DefinitionSummary(Shown):
    """The version of a workflow that new runs take."""

    id: str
    name: str
    hash: str = Field(description="of the version that new runs take")
    declared_hash: str = Field(description="of the version that was declared last; another one during a canary")
    canary_percent: int | None = Field(
        default=None, description="the share of new runs that take the declared version, until one is promoted"
    )
    enabled: bool
    synced_at: AwareDatetime


class DefinitionStep(Shown):
    key: str
    name: str | None
    kind: StepKind
    role: str | None = Field(
        default=None, description="of a decision: who may answer; of a manual step: who completes it"
    )
    outcomes: tuple[DecisionOutcome, ...] = ()
    artifact: str | None = Field(default=None, description="of a decision: the step whose artefact is decided on")
    question: str | None = Field(default=None, description="of a decision that asks for an answer: its text, unfilled")
    approvals: int = Field(default=1, description="of a decision: how many must approve")
    not_for: tuple[str, ...] = Field(default=(), description="of a decision: who may not answer")
    executor: str | None = Field(default=None, description="of an agent step")
    system: str | None = Field(default=None, description="of a write step")
    tool: str | None = None
    branches: tuple[str, ...] = ()
    join: Literal["all", "any"] | None = Field(default=None, description="of a parallel step")
    for_each: str | None = Field(default=None, description="the list whose items the step is done for")
    source: str | None = Field(default=None, description="of an event step: where the event comes from")
    gate: str | None = Field(default=None, description="of a gate step: what must hold")


class DefinitionStage(Shown):
    key: str
    name: str | None
    steps: tuple[DefinitionStep, ...]


class DefinitionTrigger(Shown):
    kind: TriggerKind
    roles: tuple[str, ...] = ()
    source: str | None = None
    match: JsonObject = Field(default_factory=dict)
    cron: str | None = None
    every_seconds: int | None = None
    timezone: str | None = None
    overlap: Literal["skip", "allow"] | None = None
    project: str | None = None


class VersionView(Shown):
    """One version of a workflow."""

    hash: str
    declared_at: AwareDatetime
    declared_by: ActorView
    current: bool = Field(description="whether new runs take it")
    canary_percent: int | None = Field(default=None, description="the share of new runs that take it as a canary")


class DefinitionView(DefinitionSummary):
    """A workflow as its YAML says it, for people and forms."""

    description: str | None
    domain: str | None
    required_context: tuple[str, ...] = Field(description="keys without which a start is refused")
    context_defaults: JsonObject = Field(description="what a run's own context is laid over")
    variants: tuple[str, ...] = Field(description="what a start may name as its variant, beside `default`")
    run_as: str | None
    triggers: tuple[DefinitionTrigger, ...]
    stages: tuple[DefinitionStage, ...]
    may_start: bool = Field(description="whether the caller holds a role of a manual trigger")
    versions: tuple[VersionView, ...] = Field(description="every version, the one that was declared last first")


class PromoteRequest(Sent):
    """The version that every new run is to take."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"hash": "9f86d081884c7d65"}]})

    hash: str = Field(pattern=HASH_PATTERN, description="its hash, or as much of it as tells it apart")


class DefinitionPromoted(Shown):
    definition_id: str
    hash: str


class FieldChange(Shown):
    """One value that differs. `prompt.text` and `output.schema` are the contents of the files that a step names."""

    path: str
    before: JsonValue = Field(default=None, description="null where there was none")
    after: JsonValue = Field(default=None, description="null where there is none")


class StepChange(Shown):
    """A step that is not in both versions alike. Branches stand as `<step>.<branch>`."""

    key: str
    kind: Literal["added", "removed", "changed", "moved"] = Field(
        description="`moved`: nothing but its place among the others"
    )
    fields: tuple[FieldChange, ...] = Field(default=(), description="of a changed step: what of it")


class TouchedRun(Shown):
    """A run of the version before that stands at a step which is different in the one after. It stays as it began."""

    run: RunSummary
    steps: tuple[str, ...] = Field(description="where it stands, of the steps that differ")


class DefinitionDiff(Shown):
    """What differs between two versions of a workflow, and which runs stand where it differs."""

    definition_id: str
    before: str = Field(description="hash of the one version")
    after: str = Field(description="hash of the other")
    settings: tuple[FieldChange, ...] = Field(description="what is said outside of the steps")
    steps: tuple[StepChange, ...]
    open_runs: int = Field(description="open runs of the version before")
    touched: tuple[TouchedRun, ...] = Field(description="those of them that stand at a step that differs, newest first")
