"""Wiring of notices, inside the effects service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from contracts.base import Event
from contracts.events.notice import NoticeFailed, NoticeInDoubt, NoticePutOff, NoticeSent
from libs.domain import notice
from libs.owner import Owner, Publisher
from libs.process import Tools
from libs.telemetry import metrics
from services.effects.notices.asks import Asks
from services.effects.notices.channels import Channels
from services.effects.notices.desk import Desk
from services.effects.notices.handlers import Handlers
from services.effects.notices.lanes import Lanes
from services.effects.notices.letters import Letters
from services.effects.notices.posting import Posting
from services.effects.notices.raising import Raising
from services.effects.notices.ways import Ways


@dataclass(frozen=True, slots=True)
class Notices:
    """What the service subscribes and answers with, and what it drains."""

    handlers: Handlers
    asks: Asks
    desk: Desk
    posting: Posting

    async def drain(self, within: timedelta) -> None:
        """Let the tries under way end, then hang up."""
        await self.desk.drain(within)
        await self.posting.close()


_RESULTS: Final[Mapping[type[Event], str]] = {
    NoticeSent: "sent",
    NoticePutOff: "put_off",
    NoticeFailed: "failed",
    NoticeInDoubt: "in_doubt",
}


def build(tools: Tools, publisher: Publisher) -> Notices:
    """Connect the parts; nothing runs before a message comes."""
    store, settings = tools.store, tools.settings
    within = timedelta(seconds=settings.notice_seconds)
    start_within = timedelta(seconds=settings.effect_start_seconds)
    owner = Owner(notice.CATEGORY, notice.decide, store=store, publisher=publisher, observe=_count)
    channels, posting = Channels(store), Posting()
    ways = Ways(channels, Letters(store, settings.link), tools.secrets, posting, within=within)
    desk = Desk(
        owner=owner,
        store=store,
        ways=ways,
        lanes=Lanes(tries_max=settings.notice_tries, tries_per_channel_max=settings.notice_tries_per_channel),
        start_within=start_within,
        over_within=start_within + within + timedelta(seconds=settings.effect_margin_seconds),
    )
    raising = Raising(owner, store, channels)
    return Notices(
        handlers=Handlers(owner, store, raising=raising, desk=desk, ways=ways),
        asks=Asks(owner, store, raising),
        desk=desk,
        posting=posting,
    )


def _count(_before: notice.State, events: Sequence[Event]) -> None:
    for event in events:
        if (result := _RESULTS.get(type(event))) is not None:
            metrics.NOTICES.labels(result).inc()
