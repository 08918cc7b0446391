"""What a tenant group declared of channels, and the people whom they reach."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from contracts import ids
from contracts.events.definition import ChannelSynced
from libs.domain import decision, definition, identity
from libs.eventstore.port import Recorded, Store
from minutebook.models.states import NoticeAbout
from services.effects.notices.told import Told


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel as it is declared now, and since when it has been about each of its things without a break."""

    declared: ChannelSynced
    since: Mapping[NoticeAbout, datetime]

    def is_told(self, told: Told) -> bool:
        """Whether a fact goes out here. What happened before the channel was declared for it does not."""
        since = self.since.get(told.about)
        if since is None or told.at < since:
            return False
        roles, definitions = self.declared.roles, self.declared.definitions
        if roles and told.roles and told.roles.isdisjoint(roles):
            return False
        return not definitions or told.run_id is None or told.definition_id in definitions


class Channels:
    """Reads of what is declared, as it is at that moment."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of(self, tenant_group: UUID) -> Sequence[Channel]:
        """The channels of a tenant group that are about anything."""
        stream_ids = await self._store.declared(tenant_group, "channel")
        if not stream_ids:
            return ()
        found = await self._store.events("definition", stream_ids, tenant_group=tenant_group)
        channels = (_channel(history) for history in found.values())
        return tuple(channel for channel in channels if channel is not None and channel.since)

    async def declared(self, tenant_group: UUID, channel_id: str) -> ChannelSynced | None:
        """One channel as it is declared now."""
        stream_id = ids.channel(tenant_group, channel_id)
        found = await self._store.events("definition", [stream_id], tenant_group=tenant_group)
        state = definition.CATEGORY.fold(tuple(recorded.event for recorded in found.get(stream_id, ())))
        return state.current if isinstance(state.current, ChannelSynced) else None

    async def people(self, tenant_group: UUID) -> Mapping[UUID, identity.State]:
        """The active persons of a tenant group."""
        found = await self.persons(tenant_group, await self._store.identities(tenant_group, "user"))
        return {user_id: person for user_id, person in found.items() if person.active}

    async def persons(self, tenant_group: UUID, user_ids: Collection[UUID]) -> Mapping[UUID, identity.State]:
        """Persons by id, active or not."""
        found = await self._store.events("identity", user_ids, tenant_group=tenant_group)
        return {
            user_id: identity.CATEGORY.fold(tuple(recorded.event for recorded in history))
            for user_id, history in found.items()
        }


def _channel(history: Iterable[Recorded]) -> Channel | None:
    since: dict[NoticeAbout, datetime] = {}
    current = None
    for recorded in history:
        if isinstance(recorded.event, ChannelSynced):
            current = recorded.event
            since = {about: since.get(about, current.at) for about in current.about}
    return None if current is None else Channel(current, since)


def holders(state: decision.State, people: Mapping[UUID, identity.State], tenant_group: UUID) -> list[UUID]:
    """Those of these people who may answer a decision now, in order of id."""
    return sorted(
        user_id
        for user_id, person in people.items()
        # Nothing that is judged here asks for the tenant.
        if decision.may_answer(
            identity.as_principal(user_id, person, tenant_group=tenant_group, tenant=tenant_group), state
        )
    )
