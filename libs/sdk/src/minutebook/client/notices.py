"""What people are told, and by which channels."""

from collections.abc import AsyncIterator, Sequence
from uuid import UUID

from minutebook.client.connection import Connection, once
from minutebook.models import ChannelView, NoticeChanged, NoticeView


class NoticeCalls(Connection):
    def notices(
        self, *, run: UUID | str | None = None, state: Sequence[str] = (), channel: str | None = None
    ) -> AsyncIterator[NoticeView]:
        """What people were told, newest first."""
        chosen = {"run": None if run is None else str(run), "state": list(state) or None, "channel": channel}
        return self._pages(NoticeView, "/notices", chosen)

    async def retry_notice(self, notice_id: UUID | str, *, idempotency_key: str | None = None) -> NoticeChanged:
        """Send a notice once more that failed or is in doubt; an e-mail may be read twice then."""
        return await self._call(
            NoticeChanged, "POST", f"/notices/{notice_id}/retry", json={}, headers=once(idempotency_key)
        )

    def channels(self) -> AsyncIterator[ChannelView]:
        """The channels that notices go out by, in order of id."""
        return self._pages(ChannelView, "/channels", {})
