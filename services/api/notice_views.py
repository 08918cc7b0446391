"""Notices and channels of a tenant group, for those who may see them."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

import asyncpg

from contracts.base import Principal
from contracts.errors import Rejected
from contracts.events.definition import ChannelSynced
from libs.domain import definition, notice
from libs.domain.access import is_administrator
from libs.eventstore.port import Recorded, Store
from libs.postgres.pool import fetch
from minutebook.models import ChannelView, NoticeView
from services.api.reads import Reads, fold
from services.api.where import Where

Key = tuple[datetime, UUID]
"""The sort key of a notice: when it was raised, and its id."""


class NoticeViews:
    """Lists from head rows, and what the histories say of what is on a page."""

    def __init__(self, store: Store, pool: asyncpg.Pool) -> None:
        self._store = store
        self._pool = pool
        self._reads = Reads(store)

    async def page(
        self,
        caller: Principal,
        *,
        run_id: UUID | None,
        states: Collection[str] | None,
        channel: str | None,
        limit: int,
        after: Key | None,
    ) -> list[Key]:
        """Keys of notices, newest first: an administrator's are all, anybody else's are those of runs that it sees."""
        where = Where()
        where.add("n.tenant_group = {}", caller.tenant_group)
        seen = ""
        if not is_administrator(caller):
            where.visible(caller, "r")
            seen = "join run_heads r on r.stream_id = n.run_id"
        if run_id is not None:
            where.add("n.run_id = {}", run_id)
        if states is not None:
            where.add("n.state = any({})", sorted(states))
        if channel is not None:
            where.add("n.channel = {}", channel)
        if after is not None:
            where.add("n.raised_at <= {}", after[0])
            where.add("(n.raised_at < {} or n.stream_id > {})", *after)
        rows = await fetch(
            self._pool,
            f"select n.raised_at, n.stream_id from notice_heads n {seen} where {where}"  # noqa: S608  our own texts
            f" order by n.raised_at desc, n.stream_id limit {where.place(limit)}",
            *where.arguments,
        )
        return [(row["raised_at"], row["stream_id"]) for row in rows]

    async def views(self, caller: Principal, notice_ids: Collection[UUID]) -> list[NoticeView]:
        """Notices in this order. The caller has been judged."""
        histories = await self._reads.histories("notice", caller.tenant_group, notice_ids)
        return [_view(notice_id, histories[notice_id]) for notice_id in notice_ids if notice_id in histories]

    async def require(self, caller: Principal, notice_id: UUID) -> None:
        """Hold that a notice is the tenant group's.

        Raises:
            contracts.errors.Rejected: 404.
        """
        if notice_id not in await self._reads.histories("notice", caller.tenant_group, [notice_id]):
            raise Rejected("notice.not_found", f"there is no notice {notice_id}", status=404)

    async def channels(self, caller: Principal) -> list[ChannelView]:
        """The channels of the caller's tenant group, in order of id."""
        stream_ids = await self._store.declared(caller.tenant_group, "channel")
        histories = await self._reads.histories("definition", caller.tenant_group, stream_ids)
        current = (fold(definition.CATEGORY, history).current for history in histories.values())
        declared = [channel for channel in current if isinstance(channel, ChannelSynced)]
        return [_channel(channel) for channel in sorted(declared, key=lambda channel: channel.channel_id)]


def _view(notice_id: UUID, history: tuple[Recorded, ...]) -> NoticeView:
    state = fold(notice.CATEGORY, history)
    return NoticeView.model_validate(
        {
            "notice_id": notice_id,
            "about": state.about,
            "subject": state.subject,
            "run_id": state.run_id,
            "channel": state.channel_id,
            "recipient": state.recipient,
            "state": state.status,
            "title": state.title,
            "text": state.text,
            "tries": state.tries,
            "message": state.message,
            "raised_at": state.raised_at,
            "again_at": state.again_at if state.status == "due" else None,
            "changed_at": history[-1].event.at,
        }
    )


def _channel(channel: ChannelSynced) -> ChannelView:
    return ChannelView(
        id=channel.channel_id,
        kind=channel.kind,
        hash=channel.hash,
        about=channel.about,
        roles=channel.roles,
        definitions=channel.definitions,
        url_ref=channel.url_ref,
        secret_ref=channel.secret_ref,
        sender=channel.sender,
        to=channel.to,
        holders=channel.holders,
        synced_at=channel.at,
    )
