"""What routing needs to know of a tenant group: the definitions that a source may start, their owners and projects."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from contracts import ids
from contracts.events.definition import DefinitionSynced
from libs.domain import definition, identity
from libs.eventstore.port import Store


@dataclass(frozen=True, slots=True)
class Known:
    """One tenant group as it was when a batch was read. Users by lower-case email, projects by key."""

    definitions: tuple[DefinitionSynced, ...]
    users: Mapping[str, identity.State]
    projects: Mapping[str, identity.State]


class Queries:
    """Reads by head rows, then folds those streams."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def known(self, tenant_group: UUID, sources: Collection[str]) -> Known:
        """Everything that may follow from deliveries of these sources."""
        started = await self._store.started_by(tenant_group, sources)
        found = await self._store.events("definition", started, tenant_group=tenant_group)
        states = [definition.CATEGORY.fold(tuple(r.event for r in recorded)) for recorded in found.values()]
        definitions = tuple(s.current for s in states if isinstance(s.current, DefinitionSynced))
        triggers = [trigger for current in definitions for trigger in current.event_triggers]
        emails = {trigger.run_as.lower() for trigger in triggers}
        projects = {trigger.project for trigger in triggers if trigger.project is not None}
        return Known(
            definitions=tuple(sorted(definitions, key=lambda current: current.definition_id)),
            users=await self._identities(tenant_group, {email: ids.user(tenant_group, email) for email in emails}),
            projects=await self._identities(tenant_group, {key: ids.project(tenant_group, key) for key in projects}),
        )

    async def _identities(self, tenant_group: UUID, named: Mapping[str, UUID]) -> Mapping[str, identity.State]:
        if not named:
            return {}
        found = await self._store.events("identity", list(named.values()), tenant_group=tenant_group)
        return {
            name: identity.CATEGORY.fold(tuple(r.event for r in found.get(stream_id, ())))
            for name, stream_id in named.items()
        }
