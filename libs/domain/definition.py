"""What a tenant group has declared: a workflow, an event source or an MCP server. One stream each."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal

from contracts.base import BlobRef, Event, Frozen, Principal
from contracts.errors import Rejected
from contracts.events import definition as e
from libs.domain.access import is_administrator
from libs.domain.core import NOTHING, Category, Decided, facts, never, no_run
from libs.domain.lifecycle import DEFINITION, terminal
from libs.language.model import Bundle, EventTrigger, Server, Source

Declared = e.DefinitionSynced | e.SourceSynced | e.ServerSynced


@dataclass(frozen=True, slots=True)
class State:
    """`current` is the version that counts for what begins now; `hashes` are all that were declared, in order."""

    status: str = "absent"
    kind: Literal["workflow", "source", "server", ""] = ""
    current: Declared | None = None
    hashes: tuple[str, ...] = ()
    bundles: Mapping[str, BlobRef] | None = None


class Declare(Frozen):
    """Make a version of one thing the current one. `bundle` is where a workflow's content is kept."""

    principal: Principal
    thing: Bundle | Source | Server
    bundle: BlobRef | None = None
    content: bytes = b""


def decide(command: Declare, state: State, now: datetime) -> Decided:
    """Return the fact that a version was declared; nothing when it is the current one already.

    Raises:
        contracts.errors.Rejected: ``definition.not_yours`` (403).
    """
    if not is_administrator(command.principal):
        raise Rejected("definition.not_yours", "definitions are synced by administrators", status=403)
    event = _event(command, now)
    if state.current is not None and state.current.hash == event.hash:
        return NOTHING
    blobs = {command.bundle.digest: command.content} if command.bundle else {}
    return facts(event, blobs=blobs)


def _event(command: Declare, now: datetime) -> Declared:
    match command.thing:
        case Bundle() as bundle:
            assert command.bundle is not None
            definition = bundle.definition
            return e.DefinitionSynced(
                at=now,
                definition_id=definition.id,
                name=definition.name,
                hash=bundle.hash,
                bundle=command.bundle,
                enabled=definition.enabled,
                event_triggers=tuple(
                    e.EventTrigger(source=t.source, match=t.match, run_as=definition.run_as or "", project=t.project)
                    for t in definition.triggers
                    if isinstance(t, EventTrigger)
                ),
                required_context=definition.required_context,
            )
        case Source() as source:
            return e.SourceSynced(
                at=now,
                source_id=source.id,
                adapter=source.adapter,
                secret_ref=source.secret_ref,
                signature_header=source.signature_header,
                hash=source.hash,
            )
        case Server() as server:
            return e.ServerSynced(
                at=now,
                server_id=server.id,
                url_ref=server.url_ref,
                token_ref=server.token_ref,
                tools=tuple(
                    e.ToolDeclaration(name=t.name, reference=t.reference, timeout_seconds=t.timeout.total_seconds())
                    for t in server.tools
                ),
                hash=server.hash,
            )


def evolve(state: State, event: Event) -> State:
    """The state after one more fact."""
    match event:
        case e.DefinitionSynced():
            bundles = {**(state.bundles or {}), event.hash: event.bundle}
            return replace(_declared(state, event, "workflow"), bundles=bundles)
        case e.SourceSynced():
            return _declared(state, event, "source")
        case e.ServerSynced():
            return _declared(state, event, "server")
        case _:
            return state


def _declared(state: State, event: Declared, kind: Literal["workflow", "source", "server"]) -> State:
    return replace(state, status="active", kind=kind, current=event, hashes=(*state.hashes, event.hash))


def _columns(state: State) -> Mapping[str, Any]:
    current = state.current
    name = ""
    sources: list[str] = []
    enabled = True
    schedules = 0
    match current:
        case e.DefinitionSynced():
            name, enabled = current.definition_id, current.enabled
            sources = sorted({t.source for t in current.event_triggers})
            schedules = len(current.schedules)
        case e.SourceSynced():
            name = current.source_id
        case e.ServerSynced():
            name = current.server_id
    return {
        "kind": state.kind,
        "name": name,
        "hash": current.hash if current else "",
        "enabled": enabled,
        "event_sources": sources,
        "schedules": schedules,
    }


CATEGORY: Final[Category[State]] = Category(
    name="definition",
    initial=State(),
    evolve=evolve,
    status=lambda state: state.status,
    columns=_columns,
    wake_at=never,
    run_id=no_run,
    terminal=terminal(DEFINITION),
)
