"""What a tenant group has declared: a workflow, a source, an MCP server or a channel. One stream each."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Literal, assert_never

from contracts.base import BlobRef, Event, Frozen, Principal, Sha256
from contracts.errors import Rejected
from contracts.events import definition as e
from libs.domain.access import is_administrator
from libs.domain.core import NOTHING, Category, Decided, facts, never, no_run
from libs.domain.lifecycle import DEFINITION, terminal
from libs.language.model import Bundle, Channel, EventTrigger, ScheduleTrigger, Server, Source, Tool
from minutebook.models.problem import ProblemItem

Declared = e.DefinitionSynced | e.SourceSynced | e.ServerSynced | e.ChannelSynced
Kind = Literal["workflow", "source", "server", "channel"]


@dataclass(frozen=True, slots=True)
class State:
    """`current` is the version that counts for what begins now; `hashes` are all that were declared, in order.

    `canary` is a version that only a share of new runs takes. `versions` are a workflow's by hash, `bundles` where
    their content is kept.
    """

    status: str = "absent"
    kind: Kind | Literal[""] = ""
    current: Declared | None = None
    canary: e.DefinitionSynced | None = None
    hashes: tuple[str, ...] = ()
    versions: Mapping[str, e.DefinitionSynced] = field(default_factory=dict)

    @property
    def bundles(self) -> Mapping[str, BlobRef]:
        return {hash_: version.bundle for hash_, version in self.versions.items()}


class Declare(Frozen):
    """Make a version of one thing the current one, or the canary. `bundle` is where a workflow's content is kept."""

    principal: Principal
    thing: Bundle | Source | Server | Channel
    bundle: BlobRef | None = None
    content: bytes = b""
    canary_percent: int | None = None


class Promote(Frozen):
    """Let every new run take a version that was declared before."""

    principal: Principal
    definition_id: str
    hash: Sha256


Command = Declare | Promote


def decide(command: Command, state: State, now: datetime) -> Decided:
    """Return the fact that a version was declared or promoted; nothing when it is the current one already.

    Raises:
        contracts.errors.Rejected: ``definition.not_yours`` (403), ``definition.not_found`` (404),
            ``definition.version_unknown`` (422).
    """
    if not is_administrator(command.principal):
        act = "promoted" if isinstance(command, Promote) else "synced"
        raise Rejected("definition.not_yours", f"definitions are {act} by administrators", status=403)
    match command:
        case Declare():
            return _declare(command, state, now)
        case Promote():
            return _promote(command, state, now)
        case _:
            assert_never(command)


def _declare(command: Declare, state: State, now: datetime) -> Decided:
    event = _event(command, now)
    is_current = state.current is not None and state.current.hash == event.hash
    if isinstance(event, e.DefinitionSynced) and event.canary_percent is not None:
        canary = state.canary
        same = canary is not None and (canary.hash, canary.canary_percent) == (event.hash, event.canary_percent)
        if is_current or same:
            return NOTHING
    elif is_current and state.canary is None:
        return NOTHING
    blobs = {command.bundle.digest: command.content} if command.bundle else {}
    return facts(event, blobs=blobs)


def _promote(command: Promote, state: State, now: datetime) -> Decided:
    if state.kind != "workflow":
        raise Rejected("definition.not_found", f"there is no definition {command.definition_id!r}", status=404)
    if command.hash not in state.versions:
        message = f"{command.definition_id} was never declared with the hash {command.hash}"
        raise Rejected("definition.version_unknown", message, errors=(ProblemItem(path="hash", message=message),))
    if state.current is not None and state.current.hash == command.hash and state.canary is None:
        return NOTHING
    return facts(e.DefinitionPromoted(at=now, hash=command.hash))


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
                schedules=tuple(
                    e.ScheduleTrigger(
                        cron=t.cron,
                        every_seconds=None if t.every is None else int(t.every.total_seconds()),
                        timezone=t.timezone,
                        overlap=t.overlap,
                        run_as=definition.run_as or "",
                        project=t.project,
                    )
                    for t in definition.triggers
                    if isinstance(t, ScheduleTrigger)
                ),
                variants=tuple(bundle.variants),
                canary_percent=command.canary_percent,
            )
        case Source() as source:
            return e.SourceSynced(
                at=now,
                source_id=source.id,
                adapter=source.adapter,
                secret_ref=source.secret_ref,
                signature_header=source.signature_header,
                hash=source.hash,
                window_seconds=source.window.total_seconds(),
            )
        case Server() as server:
            return server_synced(server, now)
        case Channel() as channel:
            return e.ChannelSynced(
                at=now,
                channel_id=channel.id,
                kind=channel.kind,
                url_ref=channel.url_ref,
                secret_ref=channel.secret_ref,
                about=channel.about,
                roles=channel.roles,
                definitions=channel.definitions,
                sender=channel.sender,
                to=channel.to,
                holders=channel.holders,
                hash=channel.hash,
            )


def server_synced(server: Server, now: datetime) -> e.ServerSynced:
    """The fact that declares a server."""
    rate, breaker = server.rate_limit, server.circuit_breaker
    return e.ServerSynced(
        at=now,
        server_id=server.id,
        transport=server.transport,
        url_ref=server.url_ref,
        token_ref=server.token_ref,
        command=server.command,
        env=server.env,
        grants=server.grants,
        grant_env=server.grant_env,
        tools=tuple(_tool(tool) for tool in server.tools),
        concurrency=server.concurrency,
        rate_calls=None if rate is None else rate.calls,
        rate_seconds=None if rate is None else rate.per.total_seconds(),
        breaker_failures=breaker.failures,
        breaker_cooldown_seconds=breaker.cooldown.total_seconds(),
        hash=server.hash,
    )


def _tool(tool: Tool) -> e.ToolDeclaration:
    return e.ToolDeclaration(
        name=tool.name,
        reference=tool.reference,
        timeout_seconds=tool.timeout.total_seconds(),
        idempotency_argument=tool.idempotency_argument,
        probe=None if tool.probe is None else e.ProbeDeclaration(**tool.probe.model_dump()),
        back_link=None if tool.back_link is None else e.BackLinkDeclaration(**tool.back_link.model_dump()),
    )


def evolve(state: State, event: Event) -> State:
    """The state after one more fact."""
    match event:
        case e.DefinitionSynced():
            return _version(state, event)
        case e.DefinitionPromoted():
            return replace(state, current=state.versions.get(event.hash, state.current), canary=None)
        case e.SourceSynced():
            return _declared(state, event, "source")
        case e.ServerSynced():
            return _declared(state, event, "server")
        case e.ChannelSynced():
            return _declared(state, event, "channel")
        case _:
            return state


def _version(state: State, event: e.DefinitionSynced) -> State:
    """A canary does not become the current version, unless there is none."""
    versions = {**state.versions, event.hash: event}
    if event.canary_percent is not None and state.current is not None:
        return replace(state, canary=event, hashes=(*state.hashes, event.hash), versions=versions)
    return replace(_declared(state, event, "workflow"), canary=None, versions=versions)


def _declared(state: State, event: Declared, kind: Kind) -> State:
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
        case e.ChannelSynced():
            name = current.channel_id
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
