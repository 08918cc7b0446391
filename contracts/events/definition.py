"""Facts of what a tenant group has declared: workflows, event sources and MCP servers. Written by the planner."""

from typing import Literal

from contracts.base import BlobRef, Event, Frozen, JsonObject, Sha256
from contracts.registry import event


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


class ToolDeclaration(Frozen):
    """A tool that write steps may call."""

    name: str
    reference: str | None = None
    timeout_seconds: float = 30.0


@event("definition.server_synced")
class ServerSynced(Event):
    """An MCP server that write steps may name. `url_ref` and `token_ref` name secrets."""

    server_id: str
    url_ref: str
    token_ref: str | None
    tools: tuple[ToolDeclaration, ...]
    hash: Sha256


DefinitionEvent = DefinitionSynced | DefinitionPromoted | SourceSynced | ServerSynced
