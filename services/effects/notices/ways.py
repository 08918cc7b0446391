"""From a notice to a try: its channel as it is declared now, the secrets, the people, and how it is sent."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from contracts.errors import Unavailable
from contracts.events.definition import ChannelSynced
from libs.config import Secrets
from libs.domain.notice import State
from minutebook.models.states import ChannelKind
from services.effects.notices import chats, mail, webhook
from services.effects.notices.channels import Channels
from services.effects.notices.letters import Letter, Letters
from services.effects.notices.outcomes import NotSent, Outcome
from services.effects.notices.posting import Posting

KNOWS_AGAIN: Final[frozenset[ChannelKind]] = frozenset({"webhook"})
"""Kinds whose receivers know a message that they have had. The others show it twice."""

Send = Callable[[], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Try:
    """A try that is ready to be made, or why it cannot be. Holds secrets: never logged."""

    known_again: bool
    send: Send | NotSent


class Ways:
    """Makes tries ready, so that nothing that may fail stands between an announcement and its try."""

    def __init__(
        self, channels: Channels, letters: Letters, secrets: Secrets, posting: Posting, *, within: timedelta
    ) -> None:
        self._channels = channels
        self._letters = letters
        self._secrets = secrets
        self._posting = posting
        self._within = within

    async def ready(self, notice_id: UUID, notice: State, tenant_group: UUID) -> Try:
        """Make a try ready.

        Raises:
            contracts.errors.Unavailable: the record does not answer; nothing is known.
        """
        channel = await self._channels.declared(tenant_group, notice.channel_id)
        if channel is None:
            return Try(known_again=False, send=NotSent(f"no channel {notice.channel_id!r} is declared; sync one"))
        letter = await self._letters.write(notice_id, notice, tenant_group)
        to = await self._addresses(channel, notice, tenant_group)
        try:
            send = self._send(channel, letter, to)
        except Unavailable as error:
            send = NotSent(error.message)
        return Try(known_again=channel.kind in KNOWS_AGAIN, send=send)

    async def knows_again(self, tenant_group: UUID, channel_id: str) -> bool:
        """Whether what may have been sent on this channel may be sent again."""
        channel = await self._channels.declared(tenant_group, channel_id)
        return channel is not None and channel.kind in KNOWS_AGAIN

    async def _addresses(self, channel: ChannelSynced, notice: State, tenant_group: UUID) -> tuple[str, ...]:
        """Whom an e-mail goes to. A person's address is looked up now, so one who has left gets none."""
        if notice.recipient is None:
            return channel.to
        person = (await self._channels.persons(tenant_group, [notice.recipient])).get(notice.recipient)
        return (person.email,) if person is not None and person.active and person.email else ()

    def _send(self, channel: ChannelSynced, letter: Letter, to: tuple[str, ...]) -> Send | NotSent:
        url = self._secrets.require(channel.url_ref)
        match channel.kind:
            case "webhook":
                assert channel.secret_ref is not None, "a webhook is signed"
                secrets = self._secrets.overlapping(channel.secret_ref)
                body = webhook.body_of(letter)
                headers = webhook.headers_of(letter, body, secrets=secrets, at_seconds=int(time.time()))
                return lambda: self._posting.post(url, body, headers, within=self._within)
            case "email":
                return self._mail(channel, url, letter, to)
            case "slack" | "teams":
                body = chats.BODIES[channel.kind](letter)
                return lambda: self._posting.post(url, body, {}, within=self._within)

    def _mail(self, channel: ChannelSynced, url: str, letter: Letter, to: tuple[str, ...]) -> Send | NotSent:
        assert channel.sender is not None, "e-mail comes from somebody"
        sender = channel.sender
        if not to:
            return NotSent(
                "nobody is there to get it: the person is no active user, or the channel names no address", True
            )
        try:
            message = mail.message_of(letter, sender=sender, to=to)
        except ValueError:
            return NotSent("an address or the title is not fit for a header", final=True)
        return lambda: mail.send(url, message, sender=sender, to=to, within=self._within)
