"""From facts to notices: one per channel and person, under an id made of both, so that none is raised twice."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from contracts import ids
from contracts.errors import MinutebookError, Unavailable
from contracts.events.notice import NoticeRaised
from libs.domain import identity
from libs.domain.notice import Command, Raise, State
from libs.eventstore.port import Store
from libs.faultpoints import faultpoint
from libs.owner import Item, Owner
from libs.process import actor
from services.effects.notices.channels import Channel, Channels, holders
from services.effects.notices.told import Told

_ACTOR = actor("effects")


class Raising:
    """Raises what the channels of the tenant groups ask for."""

    def __init__(self, owner: Owner[State, Command], store: Store, channels: Channels) -> None:
        self._owner = owner
        self._store = store
        self._channels = channels

    async def raise_(self, told: Sequence[Told]) -> Mapping[UUID, MinutebookError]:
        """Raise a notice of each fact on each channel that is told of it. Failures are by the fact's stream."""
        by_group: defaultdict[UUID, list[Told]] = defaultdict(list)
        for one in told:
            by_group[one.tenant_group].append(one)
        failures: dict[UUID, MinutebookError] = {}
        for tenant_group, ours in by_group.items():
            try:
                items = await self._items(tenant_group, ours)
            except Unavailable as error:
                failures.update(dict.fromkeys((one.subject for one in ours), error))
                continue
            results = await self._owner.handle(items)
            faultpoint("notice.raised")
            for item, result in zip(items, results, strict=True):
                if isinstance(result, MinutebookError):
                    failures[item.causation] = result
        return failures

    async def abouts(self, tenant_group: UUID) -> frozenset[str]:
        """What any channel of a tenant group is about."""
        channels = await self._channels.of(tenant_group)
        return frozenset(about for channel in channels for about in channel.since)

    async def told_of(self, tenant_group: UUID, about: str) -> list[str]:
        """The channels of a tenant group that are about this."""
        channels = await self._channels.of(tenant_group)
        return [channel.declared.channel_id for channel in channels if about in channel.since]

    async def _items(self, tenant_group: UUID, told: Sequence[Told]) -> list[Item[Command]]:
        channels = await self._channels.of(tenant_group)
        wanted = [(channel, one) for channel in channels for one in told if channel.is_told(one)]
        if not wanted:
            return []
        now = await self._store.now()
        people: Mapping[UUID, identity.State] = {}
        if any(channel.declared.holders and one.decision is not None for channel, one in wanted):
            people = await self._channels.people(tenant_group)
        return [
            self._item(channel, one, recipient, now)
            for channel, one in wanted
            for recipient in _recipients(channel, one, people)
        ]

    @staticmethod
    def _item(channel: Channel, told: Told, recipient: UUID | None, now: datetime) -> Item[Command]:
        channel_id = channel.declared.channel_id
        raised = NoticeRaised(
            at=now,
            about=told.about,
            subject=told.subject,
            run_id=told.run_id,
            channel_id=channel_id,
            recipient=recipient,
            title=told.title,
            text=told.text,
        )
        return Item(
            stream_id=ids.notice(
                told.tenant_group,
                channel_id,
                told.about,
                told.subject,
                told.number,
                "" if recipient is None else str(recipient),
            ),
            command=Raise(fact=raised),
            actor=_ACTOR,
            causation=told.subject,
            tenant_group=told.tenant_group,
            tenant=told.tenant,
            traceparent=told.traceparent,
        )


def _recipients(channel: Channel, told: Told, people: Mapping[UUID, identity.State]) -> Iterator[UUID | None]:
    """None for what the channel itself names, then the persons who may answer."""
    if channel.declared.kind != "email" or channel.declared.to:
        yield None
    if channel.declared.holders and told.decision is not None:
        yield from holders(told.decision, people, told.tenant_group)
