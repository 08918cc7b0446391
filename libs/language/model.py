"""Checked values of the definition language. Built only by `loader`, from text, or read back from a stored bundle."""

from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import Field

from contracts.base import Frozen, JsonObject, Microdollars, Sha256
from contracts.events.run import RoleBinding
from minutebook.models.states import ChannelKind, DecisionOutcome, FailureAction, FailureClass, NoticeAbout

Key = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
"""Keys of stages, steps and branches; unique in their workflow. Dashes are for ids only."""

Id = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
"""Ids of workflows, sources, servers and channels."""


DEFAULT_VARIANT: Final = "default"


class Wait(Frozen):
    """When a step begins, once it is its turn: after `for_`, or at `until`, an instant or a path to one.

    Exactly one is set. A moment that has passed already does not wait.
    """

    for_: timedelta | None = None
    until: str | None = None


class ForEach(Frozen):
    """Do a step once per item of the list at `items`, a path as in expressions; at most `max_parallel` at a time.

    Items run as `<key>.<index>`, from 0; their outputs join under the step's key as a list in order.
    """

    items: str
    max_parallel: int = Field(default=5, ge=1, le=50)


class AgentStep(Frozen):
    """A step that an executor runs. `prompt` and `output` name files of the bundle.

    `timeout` is of each attempt. `tools` and what a definition says of `repo` and `permission_mode` are for executors
    that run sessions; the others refuse tools that they do not have.
    """

    kind: Literal["agent"] = "agent"
    key: Key
    name: str | None = None
    wait: Wait | None = None
    timeout: timedelta | None = None
    for_each: ForEach | None = None
    tools: tuple[str, ...] = ()
    prompt: str
    agent: str = Field(default="anthropic", description="the executor")
    queue: str = "default"
    output: str | None = None
    model: str | None = None
    budget_microdollars: Microdollars | None = None
    gate: str | None = None
    loop_to: str | None = None
    loop_max: int | None = Field(default=None, ge=1, le=20)


class Approvals(Frozen):
    """How many must approve: `need` in all, and of the holders of each role in `groups` at least so many.

    `distinct`: a person approves once, however many roles they hold. `veto` `any`: the first answer that is no approval
    ends it; `none`: it goes on until the approvals that are needed cannot come any more.
    """

    need: int = Field(ge=1, le=20)
    distinct: bool = True
    groups: dict[str, int] = Field(default_factory=dict)
    veto: Literal["any", "none"] = "any"


ANSWER_FORM: Final[JsonObject] = {
    "type": "object",
    "properties": {"answer": {"type": "string", "minLength": 1}},
    "required": ["answer"],
    "additionalProperties": False,
}
"""What the answer to a question must fit that names no form."""


class DecisionStep(Frozen):
    """A judgement on an artefact; with `question` or `form`, a question whose answer object is the step's output.

    `barred` (`not:` in the file) holds `initiator`, `reviser` and keys of earlier steps whose deciders may not answer.
    When `timeout` passes the step takes `timeout_answer` as its answer, goes on at `on_timeout` (`on: {timeout: ...}`),
    or fails. An approval is good for `approval_valid_for`; a write that comes later has it asked for again.
    """

    kind: Literal["decision"] = "decision"
    key: Key
    name: str | None = None
    role: str
    wait: Wait | None = None
    timeout: timedelta | None = Field(default=None, description="unanswered this long, the step fails as `timeout`")
    artifact: str | None = Field(default=None, description="key of the step whose artefact is decided on")
    outcomes: tuple[DecisionOutcome, ...] = ("approve", "request_changes", "reject", "cancel")
    on: dict[DecisionOutcome, str] = Field(default_factory=dict)
    due: timedelta | None = None
    escalate_to: str | None = None
    approvals: Approvals | None = None
    barred: tuple[str, ...] = ()
    approval_valid_for: timedelta | None = None
    question: str | None = None
    form: str | None = Field(default=None, description="path of the JSON Schema that the answer must fit")
    timeout_answer: JsonObject | None = None
    on_timeout: str | None = None

    @property
    def is_question(self) -> bool:
        return self.question is not None or self.form is not None


class ManualStep(Frozen):
    """A person of the role completes it with an artefact; without a role the run's initiator does."""

    kind: Literal["manual"] = "manual"
    key: Key
    name: str | None = None
    wait: Wait | None = None
    timeout: timedelta | None = None
    role: str | None = None
    output: str | None = None


class EventStep(Frozen):
    """Waits for an event of the source. Text `$context.<path>` in `match` stands for what the run's context has there.

    The step's output is an object with `event`, `external_id`, `keys` and `payload`.
    """

    kind: Literal["event"] = "event"
    key: Key
    name: str | None = None
    wait: Wait | None = None
    timeout: timedelta | None = None
    source: Id
    match: JsonObject = Field(default_factory=dict)


class GateStep(Frozen):
    """Passes when its expression holds. Its bare paths read the run's `steps`, `context` and `state` only."""

    kind: Literal["gate"] = "gate"
    key: Key
    name: str | None = None
    wait: Wait | None = None
    gate: str
    escalate_to: str | None = None
    loop_to: str | None = None
    loop_max: int | None = Field(default=None, ge=1, le=20)


class ParallelStep(Frozen):
    """Branches run side by side as `<key>.<branch>`; their outputs join under `key` as an object by branch.

    With `any` the first that succeeds is enough, and the others are cancelled.
    """

    kind: Literal["parallel"] = "parallel"
    key: Key
    name: str | None = None
    wait: Wait | None = None
    parallel: tuple[AgentStep, ...]
    join: Literal["all", "any"] = "all"


class WriteStep(Frozen):
    """One MCP tool call after an approval; with `for_each` one per item, and `args_from` may be `item` or a path in it.

    `requires_decision` is resolved at load: never None afterwards.
    """

    kind: Literal["write"] = "write"
    key: Key
    name: str | None = None
    wait: Wait | None = None
    for_each: ForEach | None = None
    system: Id
    tool: str
    args_from: str | None = None
    args: JsonObject = Field(default_factory=dict)
    effect_key: str
    requires_decision: str


Step = Annotated[
    AgentStep | DecisionStep | ManualStep | EventStep | GateStep | ParallelStep | WriteStep,
    Field(discriminator="kind"),
]


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


class ScheduleTrigger(Frozen):
    """Either `cron`, six fields with seconds first, read in `timezone`; or `every`, counted from the last run's end.

    `overlap` says whether a slot starts a run while the one before is still open.
    """

    kind: Literal["schedule"] = "schedule"
    cron: str | None = None
    every: timedelta | None = None
    timezone: str = "UTC"
    overlap: Literal["skip", "allow"] = "skip"
    project: str | None = None


Trigger = Annotated[ManualTrigger | EventTrigger | ScheduleTrigger, Field(discriminator="kind")]


class Concurrency(Frozen):
    """At most `limit` runs with the same key work at a time; the others are held in the order of their starts.

    `key` is a template over `{{context.*}}`; an empty one is one key for all runs. With `coalesce` only the newest of
    those that wait stays, the others are superseded. More than `max_queued` are refused.
    """

    key: str = ""
    limit: int = Field(default=1, ge=1, le=1_000)
    mode: Literal["queue", "coalesce"] = "queue"
    max_queued: int = Field(default=1_000, ge=1, le=100_000)


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
    repo: str | None = None
    permission_mode: str | None = None
    variants: dict[str, JsonObject] = Field(default_factory=dict, description="what each overrides: path → value")
    context_defaults: JsonObject = Field(default_factory=dict, description="what the run's own context is laid over")
    required_context: tuple[str, ...] = ()
    scope_context: tuple[str, ...] = ()
    concurrency: Concurrency | None = None
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

    `definition` is the default variant, `variants` are the definition as each of its variants has it.

    `prompts` and `schemas` map the paths that steps name to the prompt's text and to the parsed JSON Schema.
    """

    definition: Definition
    variants: dict[str, Definition] = Field(default_factory=dict)
    prompts: dict[str, str] = Field(default_factory=dict)
    schemas: dict[str, JsonObject] = Field(default_factory=dict)
    hash: Sha256

    def form_of(self, step: DecisionStep) -> JsonObject:
        """The JSON Schema that the answer to a question must fit."""
        return ANSWER_FORM if step.form is None else self.schemas[step.form]

    def of(self, variant: str | None) -> Definition:
        """The definition as a variant has it; None is the default one.

        Raises:
            KeyError: there is no such variant.
        """
        return self.definition if variant is None or variant == DEFAULT_VARIANT else self.variants[variant]


class Source(Frozen):
    """An event source. Without `secret_ref` deliveries authenticate with a bearer token."""

    id: Id
    kind: Literal["webhook"] = "webhook"
    adapter: Literal["jira", "salesforce", "github", "generic"]
    secret_ref: str | None = None
    signature_header: str = "x-hub-signature-256"
    window: timedelta = timedelta(minutes=5)
    hash: Sha256


class Probe(Frozen):
    """How the target is asked whether a write is there: a tool that reads, and what one of its `items` must be like.

    `match` maps dotted paths of an item to the values that they must have. Texts of `args` and `match` interpolate
    `{{args.*}}`, the write's own, `{{key}}` and `{{run_id}}`. `absent` says what it means that none is found.
    """

    tool: str
    args: JsonObject = Field(default_factory=dict)
    items: str | None = None
    match: JsonObject
    reference: str | None = None
    absent: Literal["in_doubt", "not_landed"] = "in_doubt"


class BackLink(Frozen):
    """Links a written record to its run. Its `args` may say `{{reference}}` and `{{run_url}}` too."""

    tool: str
    args: JsonObject


class Tool(Frozen):
    """A declared tool. `reference` is the dotted path of the record's reference in the tool's structured result."""

    name: str
    reference: str | None = None
    timeout: timedelta = timedelta(seconds=30)
    idempotency_argument: str | None = None
    probe: Probe | None = None
    back_link: BackLink | None = None


class RateLimit(Frozen):
    calls: int = Field(ge=1, le=10_000)
    per: timedelta


class CircuitBreaker(Frozen):
    """After `failures` calls in a row that were not sent, none is tried for `cooldown`."""

    failures: int = Field(default=5, ge=1, le=100)
    cooldown: timedelta = timedelta(seconds=30)


class Server(Frozen):
    """An MCP server over streamable HTTP, or one that is started as a command and spoken to over its pipes.

    `url_ref`, `token_ref` and the values of `env` name secrets, so no address is in the hash. `grants` says whether a
    write authenticates with a grant of its run's owner: `required`, `optional` (else with `token_ref`), or `none`. Over
    stdio a grant is handed to the command in the environment variable `grant_env`.
    """

    id: Id
    name: str | None = None
    transport: Literal["streamable_http", "stdio"] = "streamable_http"
    url_ref: str | None = None
    token_ref: str | None = None
    command: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    grants: Literal["required", "optional", "none"] = "optional"
    grant_env: str | None = None
    tools: tuple[Tool, ...]
    concurrency: int | None = Field(default=None, ge=1, le=100)
    rate_limit: RateLimit | None = None
    circuit_breaker: CircuitBreaker = CircuitBreaker()
    hash: Sha256


class Channel(Frozen):
    """Where notices go. `url_ref` names the secret that holds the address, `secret_ref` that signs a webhook.

    `about` says of what; where `roles` or `definitions` are named, only of decisions for these roles and of runs of
    these workflows. An e-mail goes to the addresses in `to`, and with `holders` to those who may answer the decision.
    """

    id: Id
    kind: ChannelKind
    url_ref: str
    secret_ref: str | None = None
    about: tuple[NoticeAbout, ...]
    roles: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()
    sender: str | None = None
    to: tuple[str, ...] = ()
    holders: bool = False
    hash: Sha256


class Folder(Frozen):
    """A whole `definitions/` folder, checked."""

    workflows: tuple[Bundle, ...] = ()
    sources: tuple[Source, ...] = ()
    servers: tuple[Server, ...] = ()
    channels: tuple[Channel, ...] = ()
