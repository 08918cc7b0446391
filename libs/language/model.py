"""Checked values of the definition language. Built only by `loader`, from text, or read back from a stored bundle."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from contracts.base import Frozen, JsonObject, Microdollars, Sha256
from contracts.events.decision import RoleBinding
from minutebook.models.states import DecisionOutcome, FailureAction, FailureClass

Key = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
"""Keys of stages, steps and branches; unique in their workflow. Dashes are for ids only."""

Id = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
"""Ids of workflows, sources and servers."""


class AgentStep(Frozen):
    """A step that an executor runs. `prompt` and `output` name files of the bundle."""

    kind: Literal["agent"] = "agent"
    key: Key
    name: str | None = None
    prompt: str
    agent: str = Field(default="anthropic", description="the executor")
    queue: str = "default"
    output: str | None = None
    model: str | None = None
    budget_microdollars: Microdollars | None = None
    gate: str | None = None
    loop_to: str | None = None
    loop_max: int | None = Field(default=None, ge=1, le=20)


class DecisionStep(Frozen):
    kind: Literal["decision"] = "decision"
    key: Key
    name: str | None = None
    role: str
    artifact: str | None = Field(default=None, description="key of the step whose artefact is decided on")
    outcomes: tuple[DecisionOutcome, ...] = ("approve", "request_changes", "reject", "cancel")
    on: dict[DecisionOutcome, str] = Field(default_factory=dict)


class ParallelStep(Frozen):
    """Branches run side by side as `<key>.<branch>`; their outputs join under `key` as an object by branch."""

    kind: Literal["parallel"] = "parallel"
    key: Key
    name: str | None = None
    parallel: tuple[AgentStep, ...]
    join: Literal["all"] = "all"


class WriteStep(Frozen):
    """One MCP tool call after an approval. `requires_decision` is resolved at load: never None afterwards."""

    kind: Literal["write"] = "write"
    key: Key
    name: str | None = None
    system: Id
    tool: str
    args_from: str | None = None
    args: JsonObject = Field(default_factory=dict)
    effect_key: str
    requires_decision: str


Step = Annotated[AgentStep | DecisionStep | ParallelStep | WriteStep, Field(discriminator="kind")]


class Stage(Frozen):
    key: Key
    name: str | None = None
    entry_requires: tuple[str, ...] = ()
    steps: tuple[Step, ...]


class ManualTrigger(Frozen):
    kind: Literal["manual"] = "manual"
    roles: tuple[str, ...]


class EventTrigger(Frozen):
    """`match` compares `event` and the event's keys; `project` files the run under a project."""

    kind: Literal["event"] = "event"
    source: Id
    match: JsonObject
    project: str | None = None


Trigger = Annotated[ManualTrigger | EventTrigger, Field(discriminator="kind")]


class Limits(Frozen):
    max_attempts: int = Field(default=3, ge=1, le=20)
    max_loop: int = Field(default=2, ge=0, le=20)
    wall_clock: timedelta = timedelta(hours=2)


class Definition(Frozen):
    """One version of a workflow. Steps are numbered in reading order over all stages."""

    id: Id
    name: str
    domain: str | None = None
    description: str | None = None
    enabled: bool = True
    required_context: tuple[str, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    run_as: str | None = None
    roles: dict[str, RoleBinding] = Field(default_factory=dict)
    stages: tuple[Stage, ...]
    limits: Limits = Limits()
    on_failure: dict[FailureClass, FailureAction] = Field(default_factory=dict)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every top-level step in order. Branches stand inside their parallel step."""
        return tuple(step for stage in self.stages for step in stage.steps)

    def binding(self, role: str) -> RoleBinding:
        """What a workflow role resolves to; an unbound name is a platform role."""
        return self.roles.get(role) or RoleBinding(roles=(role,))


class Bundle(Frozen):
    """A definition with the files that its hash covers; stored whole as a blob, so a run needs no folder.

    `prompts` and `schemas` map the paths that steps name to the prompt's text and to the parsed JSON Schema.
    """

    definition: Definition
    prompts: dict[str, str] = Field(default_factory=dict)
    schemas: dict[str, JsonObject] = Field(default_factory=dict)
    hash: Sha256


class Source(Frozen):
    """An event source. Without `secret_ref` deliveries authenticate with a bearer token."""

    id: Id
    kind: Literal["webhook"] = "webhook"
    adapter: Literal["jira", "generic"]
    secret_ref: str | None = None
    signature_header: str = "x-hub-signature-256"
    hash: Sha256


class Tool(Frozen):
    """A declared tool. `reference` is the dotted path of the record's reference in the tool's structured result."""

    name: str
    reference: str | None = None
    timeout: timedelta = timedelta(seconds=30)


class Server(Frozen):
    """An MCP server over streamable HTTP. `url_ref` and `token_ref` name settings, so no address is in the hash."""

    id: Id
    name: str | None = None
    url_ref: str
    token_ref: str | None = None
    tools: tuple[Tool, ...]
    hash: Sha256


class Folder(Frozen):
    """A whole `definitions/` folder, checked."""

    workflows: tuple[Bundle, ...] = ()
    sources: tuple[Source, ...] = ()
    servers: tuple[Server, ...] = ()
