"""Facts of what a tenant group has declared: workflows, event sources and MCP servers. Written by the planner."""

from typing import Literal

from pydantic import Field

from contracts.base import BlobRef, Event, Frozen, JsonObject, Sha256
from contracts.registry import event
from minutebook.models.states import ChannelKind, NoticeAbout


class EventTrigger(Frozen):
    """An event trigger of a definition as ingest needs it, so that routing folds no bundle."""

    source: str
    match: JsonObject
    run_as: str
    project: str | None = None


class ScheduleTrigger(Frozen):
    """A schedule trigger of a definition as the scheduler needs it: `cron` or `every_seconds`, never both."""

    cron: str | None
    every_seconds: int | None
    timezone: str
    overlap: Literal["skip", "allow"]
    run_as: str
    project: str | None = None


@event("definition.synced")
class DefinitionSynced(Event):
    """A version of a workflow was declared and is the one that new runs take.

    With `canary_percent` it is not: that share of new starts takes it, the others the one before, until a version is
    promoted. `bundle` holds the parsed definition with its prompts and schemas: `libs.language.model.Bundle`.
    """

    definition_id: str
    name: str
    hash: Sha256
    bundle: BlobRef
    enabled: bool
    event_triggers: tuple[EventTrigger, ...]
    required_context: tuple[str, ...]
    schedules: tuple[ScheduleTrigger, ...] = ()
    variants: tuple[str, ...] = ()
    canary_percent: int | None = None


@event("definition.promoted")
class DefinitionPromoted(Event):
    """This version, declared before, is the one that every new run takes. It ends a canary."""

    hash: Sha256


@event("definition.source_synced")
class SourceSynced(Event):
    """An event source: `secret_ref` names the secret, never holds it.

    A wait also takes events of the source that came since its run was created, or up to `window_seconds` before that.
    """

    source_id: str
    adapter: str
    secret_ref: str | None
    signature_header: str
    hash: Sha256
    window_seconds: float = 300.0


class ProbeDeclaration(Frozen):
    """How a target is asked whether a write is there: a tool that reads, and what one of its `items` must be like.

    `match` maps dotted paths of an item to the values they must have; texts of `args` and `match` are templates.
    `absent` says what it means that none is found: `not_landed` where the target shows at once what was written.
    """

    tool: str
    args: JsonObject
    items: str | None
    match: JsonObject
    reference: str | None
    absent: Literal["in_doubt", "not_landed"]


class BackLinkDeclaration(Frozen):
    """The tool that links a written record back to its run. Texts of `args` are templates."""

    tool: str
    args: JsonObject


class ToolDeclaration(Frozen):
    """A tool that write steps may call. `idempotency_argument` names the one that takes the effect's key."""

    name: str
    reference: str | None = None
    timeout_seconds: float = 30.0
    idempotency_argument: str | None = None
    probe: ProbeDeclaration | None = None
    back_link: BackLinkDeclaration | None = None


@event("definition.server_synced")
class ServerSynced(Event):
    """An MCP server that write steps may name. `url_ref`, `token_ref` and the values of `env` name secrets.

    A server over `stdio` has a `command` and no address. `grants` says whether a write needs a grant of its run's
    owner, takes it where there is one, or takes the server's own token always.
    """

    server_id: str
    url_ref: str | None
    token_ref: str | None
    tools: tuple[ToolDeclaration, ...]
    hash: Sha256
    transport: Literal["streamable_http", "stdio"] = "streamable_http"
    command: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    grants: Literal["required", "optional", "none"] = "optional"
    grant_env: str | None = None
    concurrency: int | None = None
    rate_calls: int | None = None
    rate_seconds: float | None = None
    breaker_failures: int = 5
    breaker_cooldown_seconds: float = 30.0


@event("definition.channel_synced")
class ChannelSynced(Event):
    """A channel that notices go out by. `url_ref` and `secret_ref` name secrets.

    Of `about`, and where `roles` are named only of decisions for these workflow roles, of `definitions` only.
    `to` are addresses that e-mail goes to beside the holders of a decision's role, where `holders` is set.
    """

    channel_id: str
    kind: ChannelKind
    url_ref: str
    secret_ref: str | None
    about: tuple[NoticeAbout, ...]
    roles: tuple[str, ...]
    definitions: tuple[str, ...]
    sender: str | None
    to: tuple[str, ...]
    holders: bool
    hash: Sha256


DefinitionEvent = DefinitionSynced | DefinitionPromoted | SourceSynced | ServerSynced | ChannelSynced
