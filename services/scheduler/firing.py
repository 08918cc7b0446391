"""Reads what firing needs: the version that new runs take, its owner and project, and how the last run stands."""

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from contracts import ids
from contracts.base import BlobRef, JsonObject
from contracts.errors import Broken, MinutebookError
from contracts.events.definition import DefinitionSynced
from contracts.events.run import UserRef
from libs.domain import definition, identity
from libs.domain.lifecycle import RUN_OPEN
from libs.domain.schedule import Known, LastRun, State, trigger_of
from libs.eventstore.port import EventStore, Store
from libs.language.model import Bundle

DEFAULTS_CACHED_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Version:
    """The version of a definition that new runs take, and whose it is."""

    synced: DefinitionSynced
    tenant_group: UUID
    tenant: UUID


async def versions(store: EventStore, definition_ids: Collection[UUID]) -> Mapping[UUID, Version]:
    """The current versions of workflows, by stream; those without one are left out."""
    load = await store.load("definition", dict.fromkeys(definition_ids, 0))
    found = {}
    for stream_id, loaded in load.streams.items():
        current = definition.CATEGORY.fold(tuple(fact.event for fact in loaded.events)).current
        if isinstance(current, DefinitionSynced) and loaded.tenant_group is not None and loaded.tenant is not None:
            found[stream_id] = Version(current, loaded.tenant_group, loaded.tenant)
    return found


class Evidence:
    """Reads for a batch of lines with one query per kind. What content addresses name is cached."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._defaults: OrderedDict[tuple[UUID, str], JsonObject] = OrderedDict()

    async def read(self, lines: Sequence[tuple[UUID, State]]) -> list[Known | MinutebookError]:
        """What each (tenant group, line) needs, in order; or why it cannot be said, which concerns that line alone."""
        streams = [ids.definition(group, state.definition_id) for group, state in lines]
        current = await versions(self._store, streams)
        triggers = [
            trigger_of(version.synced, state.line) if (version := current.get(stream)) is not None else None
            for stream, (_, state) in zip(streams, lines, strict=True)
        ]
        named: defaultdict[UUID, set[UUID]] = defaultdict(set)
        for (group, _), trigger in zip(lines, triggers, strict=True):
            if trigger is not None:
                named[group].add(ids.user(group, trigger.run_as))
                if trigger.project is not None:
                    named[group].add(ids.project(group, trigger.project))
        people = {group: await self._identities(group, stream_ids) for group, stream_ids in named.items()}
        runs = await self.last_runs([state for _, state in lines])
        found: list[Known | MinutebookError] = []
        for (group, state), stream, trigger in zip(lines, streams, triggers, strict=True):
            version = current.get(stream)
            if version is None or trigger is None:
                found.append(Known(group, None if version is None else version.synced, None))
                continue
            try:
                context = await self._context(group, version.synced.bundle)
            except Broken as error:
                found.append(error)
                continue
            found.append(
                Known(
                    tenant_group=group,
                    version=version.synced,
                    trigger=trigger,
                    owner=_owner(people[group].get(ids.user(group, trigger.run_as)), group, trigger.run_as),
                    has_project=trigger.project is None
                    or _is_project(people[group].get(ids.project(group, trigger.project))),
                    context=context,
                    last_run=None if state.last_run is None else runs.get(state.last_run),
                )
            )
        return found

    async def last_runs(self, lines: Sequence[State]) -> Mapping[UUID, LastRun]:
        """How the runs stand that these lines fired last."""
        run_ids = {state.last_run for state in lines if state.last_run is not None}
        if not run_ids:
            return {}
        heads = await self._store.heads("run", run_ids)
        return {run_id: LastRun(head.state in RUN_OPEN, head.finished_at) for run_id, head in heads.items()}

    async def _identities(self, group: UUID, stream_ids: Collection[UUID]) -> Mapping[UUID, identity.State]:
        found = await self._store.events("identity", stream_ids, tenant_group=group)
        return {
            stream_id: identity.CATEGORY.fold(tuple(fact.event for fact in recorded))
            for stream_id, recorded in found.items()
        }

    async def _context(self, group: UUID, bundle: BlobRef) -> JsonObject:
        """What a run has for its context when nobody gives one."""
        key = (group, bundle.digest)
        if key not in self._defaults:
            content = (await self._store.blobs(group, [bundle.digest])).get(bundle.digest)
            if content is None:
                raise Broken("bundle.missing", f"the content of definition bundle {bundle.digest} is not in the store")
            try:
                self._defaults[key] = Bundle.model_validate_json(content).definition.context_defaults
            except ValueError as error:
                raise Broken("bundle.unreadable", f"definition bundle {bundle.digest} cannot be read") from error
            while len(self._defaults) > DEFAULTS_CACHED_MAX:
                self._defaults.popitem(last=False)
        return self._defaults[key]


def _owner(user: identity.State | None, group: UUID, email: str) -> UserRef | None:
    if user is None or not user.active or user.kind not in {"user", "service_user"}:
        return None
    return UserRef(id=ids.user(group, email), email=user.email or email)


def _is_project(project: identity.State | None) -> bool:
    return project is not None and project.active and project.kind == "project"
