"""Definitions as the API shows them."""

from typing import Literal

from pydantic import AwareDatetime, ConfigDict, Field

from minutebook.models.base import JsonObject, Sent, Shown
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


class SyncedView(Shown):
    kind: Literal["workflow", "source", "server"]
    id: str
    hash: str
    changed: bool


class SyncResult(Shown):
    """What stands now, and what of it is new."""

    synced: tuple[SyncedView, ...]


class DefinitionSummary(Shown):
    """The version of a workflow that new runs take."""

    id: str
    name: str
    hash: str
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
    executor: str | None = Field(default=None, description="of an agent step")
    system: str | None = Field(default=None, description="of a write step")
    tool: str | None = None
    branches: tuple[str, ...] = ()
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


class DefinitionView(DefinitionSummary):
    """A workflow as its YAML says it, for people and forms."""

    description: str | None
    domain: str | None
    required_context: tuple[str, ...] = Field(description="keys without which a start is refused")
    run_as: str | None
    triggers: tuple[DefinitionTrigger, ...]
    stages: tuple[DefinitionStage, ...]
    may_start: bool = Field(description="whether the caller holds a role of a manual trigger")
