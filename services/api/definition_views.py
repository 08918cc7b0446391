"""Definitions and their versions, as the record has them."""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from contracts import ids
from contracts.base import BlobRef, Principal
from contracts.errors import Broken, Rejected
from contracts.events.definition import DefinitionSynced
from libs.domain import definition
from libs.eventstore.port import EventStore, Recorded
from libs.language.model import Bundle
from minutebook.models import ActorView, DefinitionSummary, DefinitionView, VersionView
from services.api.outline import definition_view
from services.api.reads import Histories, Reads, fold

BUNDLES_CACHED_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Versions:
    """What was declared under one id. `by_hash` has each version's last declaration, in their order."""

    current: DefinitionSynced
    by_hash: Mapping[str, Recorded]
    canary: DefinitionSynced | None

    @property
    def declared(self) -> DefinitionSynced:
        """The version that was declared last."""
        *_, last = self.by_hash.values()
        assert isinstance(last.event, DefinitionSynced)
        return last.event


class DefinitionViews:
    """Reads of definitions. Versions never change, so their content is kept."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._reads = Reads(store)
        self._bundles: OrderedDict[tuple[UUID, str], Bundle] = OrderedDict()

    async def summaries(self, caller: Principal, stream_ids: Collection[UUID]) -> Mapping[UUID, DefinitionSummary]:
        """Workflows by stream."""
        histories = await self._reads.histories("definition", caller.tenant_group, stream_ids)
        return {
            stream_id: _summary(versions)
            for stream_id, history in histories.items()
            if (versions := _versions(history)) is not None
        }

    async def view(self, caller: Principal, definition_id: str) -> DefinitionView:
        """The version of a workflow that new runs take, and what other versions there are.

        Raises:
            contracts.errors.Rejected: 404.
        """
        versions = await self.versions(caller, definition_id)
        bundle = await self.bundle(caller.tenant_group, versions.current.bundle)
        shown = tuple(_version(versions, recorded) for recorded in reversed([*versions.by_hash.values()]))
        return definition_view(_summary(versions), bundle, caller, shown)

    async def versions(self, caller: Principal, definition_id: str) -> Versions:
        """Everything that was declared under an id.

        Raises:
            contracts.errors.Rejected: 404.
        """
        stream_id = ids.definition(caller.tenant_group, definition_id)
        histories: Histories = await self._reads.histories("definition", caller.tenant_group, [stream_id])
        versions = _versions(histories.get(stream_id, ()))
        if versions is None:
            raise Rejected("definition.not_found", f"there is no definition {definition_id!r}", status=404)
        return versions

    async def bundle(self, tenant_group: UUID, ref: BlobRef) -> Bundle:
        """A version's content."""
        key = (tenant_group, ref.digest)
        if key not in self._bundles:
            blobs = await self._store.blobs(tenant_group, [ref.digest])
            if ref.digest not in blobs:
                raise Broken("blob.missing", f"the content {ref.digest} of a definition is not stored")
            self._bundles[key] = Bundle.model_validate_json(blobs[ref.digest])
        self._bundles.move_to_end(key)
        while len(self._bundles) > BUNDLES_CACHED_MAX:
            self._bundles.popitem(last=False)
        return self._bundles[key]


def named_version(versions: Versions, text: str) -> DefinitionSynced:
    """The version whose hash begins like this.

    Raises:
        contracts.errors.Rejected: 404 none does, 422 several do.
    """
    found = [recorded.event for hash_, recorded in versions.by_hash.items() if hash_.startswith(text)]
    id_ = versions.current.definition_id
    if not found:
        raise Rejected("version.not_found", f"{id_} has no version whose hash begins with {text}", status=404)
    if len(found) > 1:
        raise Rejected("version.ambiguous", f"{len(found)} versions of {id_} begin with {text}; give more of the hash")
    [event] = found
    assert isinstance(event, DefinitionSynced)
    return event


def _versions(history: tuple[Recorded, ...]) -> Versions | None:
    state = fold(definition.CATEGORY, history)
    if not isinstance(state.current, DefinitionSynced):
        return None
    by_hash: dict[str, Recorded] = {}
    for recorded in history:
        if isinstance(recorded.event, DefinitionSynced):
            by_hash.pop(recorded.event.hash, None)
            by_hash[recorded.event.hash] = recorded
    return Versions(current=state.current, by_hash=by_hash, canary=state.canary)


def _summary(versions: Versions) -> DefinitionSummary:
    current = versions.current
    return DefinitionSummary(
        id=current.definition_id,
        name=current.name,
        hash=current.hash,
        declared_hash=versions.declared.hash,
        canary_percent=versions.canary.canary_percent if versions.canary else None,
        enabled=current.enabled,
        synced_at=current.at,
    )


def _version(versions: Versions, recorded: Recorded) -> VersionView:
    event = recorded.event
    assert isinstance(event, DefinitionSynced)
    canary = versions.canary is not None and versions.canary.hash == event.hash
    return VersionView(
        hash=event.hash,
        declared_at=event.at,
        declared_by=ActorView.model_validate(recorded.metadata.actor.model_dump()),
        current=event.hash == versions.current.hash,
        canary_percent=event.canary_percent if canary else None,
    )
