"""What may be asked of notices: that one be tried again, and that a failing source be told of."""

from datetime import timedelta
from typing import Final

from contracts import ids
from contracts.commands import NoteFailingSource, RetryNotice
from contracts.errors import MinutebookError, Rejected
from contracts.replies import NoticeChanged, SourceNoted
from libs.domain.access import is_administrator
from libs.domain.notice import CATEGORY, Command, Rearm, State
from libs.eventstore.port import Store
from libs.owner import Item, Owner
from services.effects.notices.desk import fold
from services.effects.notices.raising import Raising
from services.effects.notices.told import of_source

TOLD_AGAIN_AFTER: Final = timedelta(hours=1)
"""How often people are told of the same failing source at most."""


class Asks:
    """Plain functions over the owner of the category and the raising."""

    def __init__(self, owner: Owner[State, Command], store: Store, raising: Raising) -> None:
        self._owner = owner
        self._store = store
        self._raising = raising

    async def retry(self, asked: RetryNotice) -> NoticeChanged:
        """Let a notice that was given up or is in doubt be sent once more; the same command again changes nothing.

        Raises:
            contracts.errors.Rejected: ``notice.not_yours`` (403), ``notice.not_found`` (404), ``notice.not_over``
                (409).
        """
        if not is_administrator(asked.principal):
            raise Rejected("notice.not_yours", "notices are sent again by administrators", status=403)
        item: Item[Command] = Item(
            stream_id=asked.notice_id,
            command=Rearm(command_id=asked.command_id),
            actor=asked.principal.actor,
            causation=asked.command_id,
            tenant_group=asked.principal.tenant_group,
            tenant=asked.principal.tenant,
            traceparent=asked.traceparent,
            deadline=asked.deadline,
        )
        (result,) = await self._owner.handle([item])
        if isinstance(result, MinutebookError):
            if result.code == "stream.not_found":
                raise Rejected("notice.not_found", "there is no such notice", status=404)
            raise result
        return NoticeChanged.model_validate({"notice_id": asked.notice_id, "state": result.state.status})

    async def note_failing_source(self, asked: NoteFailingSource) -> SourceNoted:
        """Tell of a source whose deliveries are refused again and again; at most once an hour, whoever asks."""
        now = await self._store.now()
        hour = int(now.timestamp() // TOLD_AGAIN_AFTER.total_seconds())
        principal, subject = asked.principal, ids.source(asked.source_id)
        channels = await self._raising.told_of(principal.tenant_group, "source.failing")
        before = [
            ids.notice(principal.tenant_group, channel_id, "source.failing", subject, hour - 1)
            for channel_id in channels
        ]
        load = await self._store.load(CATEGORY.name, dict.fromkeys(before, 0))
        raised = [fold(stream).raised_at for stream in load.streams.values()]
        if any(at is not None and now - at < TOLD_AGAIN_AFTER for at in raised):
            return SourceNoted(source_id=asked.source_id)
        told = of_source(
            asked.source_id,
            subject=subject,
            number=hour,
            at=now,
            tenant_group=principal.tenant_group,
            tenant=principal.tenant,
            reason=asked.reason,
            refused=asked.refused,
            since=asked.since,
        )
        for failure in (await self._raising.raise_([told])).values():
            raise failure
        return SourceNoted(source_id=asked.source_id)
