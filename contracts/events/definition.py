"""Facts of what a tenant group has declared: workflows, event sources and MCP servers. Written by the planner."""

from contracts.base import BlobRef, Event, Frozen, JsonObject, Sha256
from contracts.registry import event


class EventTrigger(Frozen):
    """An event trigger of a definition as ingest needs it, so that routing folds no bundle."""

    source: str
    match: JsonObject
    run_as: str
    project: str | None = None


@event("definition.synced")
class DefinitionSynced(Event):
    """A version of a workflow was declared and is the one that new runs take.

    `bundle` holds the parsed definition with its prompts and schemas: `libs.language.model.Bundle`.
    """

    definition_id: str
    name: str
    hash: Sha256
    bundle: BlobRef
    enabled: bool
    event_triggers: tuple[EventTrigger, ...]
    required_context: tuple[str, ...]


@event("definition.source_synced")
class SourceSynced(Event):
    """An event source: `secret_ref` names the secret, never holds it."""

    source_id: str
    adapter: str
    secret_ref: str | None
    signature_header: str
    hash: Sha256


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


DefinitionEvent = DefinitionSynced | SourceSynced | ServerSynced
