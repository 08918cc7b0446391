"""Facts of a notice: one message about one thing on one channel. Written by the effects service alone."""

from uuid import UUID

from contracts.base import Event, Instant
from contracts.registry import event
from minutebook.models.states import NoticeAbout


@event("notice.raised")
class NoticeRaised(Event):
    """`subject` is the stream that it is about, `run_id` the run of that. `recipient` is a user, for a channel that
    writes to persons.
    """

    about: NoticeAbout
    subject: UUID
    run_id: UUID | None
    channel_id: str
    recipient: UUID | None
    title: str
    text: str


@event("notice.sending")
class NoticeSending(Event):
    """Committed before it is sent. From `over_at` on this try cannot be under way anywhere."""

    claim: UUID
    tries: int
    over_at: Instant


@event("notice.sent")
class NoticeSent(Event):
    claim: UUID


@event("notice.put_off")
class NoticePutOff(Event):
    """This try failed, or is lost on a channel that knows a message again: the next one is at `again_at`."""

    claim: UUID
    message: str
    again_at: Instant


@event("notice.failed")
class NoticeFailed(Event):
    """Given up: as often tried as is tried, or refused for good."""

    message: str


@event("notice.in_doubt")
class NoticeInDoubt(Event):
    """May have been sent, on a channel that does not know a message again: it is not sent twice."""

    claim: UUID
    reason: str


@event("notice.rearmed")
class NoticeRearmed(Event):
    """Somebody wants it tried again."""

    command_id: UUID


NoticeEvent = NoticeRaised | NoticeSending | NoticeSent | NoticePutOff | NoticeFailed | NoticeInDoubt | NoticeRearmed
