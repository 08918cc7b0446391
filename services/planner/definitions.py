"""Definitions: a whole folder is checked at once; then each thing that changed becomes a fact."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

from contracts import ids
from contracts.base import JsonObject, Principal
from contracts.commands import PromoteDefinition, ServerListing, SyncDefinitions
from contracts.errors import MinutebookError, Rejected
from contracts.replies import DefinitionChanged, DefinitionsSynced, SyncedThing
from libs.canonical import blob
from libs.domain import definition
from libs.domain.access import is_administrator
from libs.eventstore.port import EventStore
from libs.language.loader import load_folder
from libs.language.model import Bundle, Channel, Folder, Server, Source
from libs.owner import Item, Owner, Publisher

Listed = Mapping[str, Mapping[str, JsonObject]]
"""What servers say of their tools: server → tool → JSON Schema of the arguments."""

Loader = Callable[[Mapping[str, str], Listed], Awaitable[Folder]]
"""Checks a folder as `libs.language.loader.load_folder` does."""


async def load_here(files: Mapping[str, str], listed: Listed) -> Folder:
    """Check a folder at once, which holds up everything else in the process for as long as it takes."""
    return load_folder(files, listed=listed)


async def load_in_a_thread(files: Mapping[str, str], listed: Listed) -> Folder:
    """Check a folder beside everything else that the process does."""
    return await asyncio.to_thread(load_folder, files, listed=listed)


class Definitions:
    """The owner of `definition`. A large folder takes seconds to check: where runs are planned too, beside them."""

    def __init__(self, store: EventStore, publisher: Publisher, *, load: Loader = load_here) -> None:
        self._load = load
        self._owner: Owner[definition.State, definition.Command] = Owner(
            definition.CATEGORY, definition.decide, store=store, publisher=publisher
        )

    async def sync(self, ask: SyncDefinitions) -> DefinitionsSynced:
        """Store what a folder declares. One problem anywhere and nothing is stored.

        Raises:
            contracts.errors.Rejected: ``definition.invalid`` (422) with every problem, ``definition.not_yours`` (403),
                ``source.taken`` (409).
        """
        if not is_administrator(ask.principal):
            raise Rejected("definition.not_yours", "definitions are synced by administrators", status=403)
        listed = {server: one.tools for server, one in ask.listings.items() if one.tools is not None}
        things = _things(await self._load(ask.files, listed))
        items = [self._item(ask, thing) for thing in things]
        results = await self._owner.handle(items)
        synced = []
        for thing, result in zip(things, results, strict=True):
            if isinstance(result, MinutebookError):
                raise _explained(result, thing)
            kind, id_ = _name(thing)
            synced.append(
                SyncedThing.model_validate({"kind": kind, "id": id_, "hash": thing.hash, "changed": result.changed})
            )
        return DefinitionsSynced(synced=tuple(synced), warnings=_warnings(ask.listings))

    async def promote(self, ask: PromoteDefinition) -> DefinitionChanged:
        """Let every new run take a version that was declared before.

        Raises:
            contracts.errors.Rejected: ``definition.not_yours`` (403), ``definition.not_found`` (404),
                ``definition.version_unknown`` (422).
        """
        item: Item[definition.Command] = Item(
            stream_id=ids.definition(ask.principal.tenant_group, ask.definition_id),
            command=definition.Promote(principal=ask.principal, definition_id=ask.definition_id, hash=ask.hash),
            actor=ask.principal.actor,
            causation=ask.command_id,
            tenant_group=ask.principal.tenant_group,
            tenant=ask.principal.tenant,
            traceparent=ask.traceparent,
        )
        (result,) = await self._owner.handle([item])
        if isinstance(result, MinutebookError):
            raise result
        return DefinitionChanged(definition_id=ask.definition_id, hash=ask.hash)

    def _item(self, ask: SyncDefinitions, thing: Bundle | Source | Server | Channel) -> Item[definition.Command]:
        ref, content, percent = None, b"", None
        if isinstance(thing, Bundle):
            ref, content = blob(thing.model_dump(mode="json"))
            percent = ask.canary_percent
        return Item(
            stream_id=_stream(ask.principal, thing),
            command=definition.Declare(
                principal=ask.principal, thing=thing, bundle=ref, content=content, canary_percent=percent
            ),
            actor=ask.principal.actor,
            causation=ask.command_id,
            tenant_group=ask.principal.tenant_group,
            tenant=ask.principal.tenant,
            traceparent=ask.traceparent,
        )


def _warnings(listings: Mapping[str, ServerListing]) -> tuple[str, ...]:
    """What could not be checked."""
    return tuple(
        f"mcp/{server}.yaml: its tools and their arguments were not checked, since the server was not asked: "
        f"{listing.unreachable}"
        for server, listing in sorted(listings.items())
        if listing.unreachable is not None
    )


def _things(folder: Folder) -> list[Bundle | Source | Server | Channel]:
    """Workflows last: they name sources and servers."""
    return [*folder.sources, *folder.servers, *folder.channels, *folder.workflows]


def _name(thing: Bundle | Source | Server | Channel) -> tuple[str, str]:
    match thing:
        case Bundle():
            return "workflow", thing.definition.id
        case Source():
            return "source", thing.id
        case Server():
            return "server", thing.id
        case Channel():
            return "channel", thing.id


def _stream(principal: Principal, thing: Bundle | Source | Server | Channel) -> UUID:
    match thing:
        case Bundle():
            return ids.definition(principal.tenant_group, thing.definition.id)
        case Source():
            return ids.source(thing.id)
        case Server():
            return ids.server(principal.tenant_group, thing.id)
        case Channel():
            return ids.channel(principal.tenant_group, thing.id)


def _explained(error: MinutebookError, thing: Bundle | Source | Server | Channel) -> MinutebookError:
    if isinstance(thing, Source) and error.status == 404:
        return Rejected(
            "source.taken",
            f"source id {thing.id!r} is taken in this installation; choose another id",
            status=409,
        )
    return error
