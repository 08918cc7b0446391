"""Notices and the channels that they go out by, as the API shows them."""

from uuid import UUID

from pydantic import AwareDatetime, Field

from minutebook.models.base import Shown
from minutebook.models.states import ChannelKind, NoticeAbout, NoticeState


class NoticeView(Shown):
    """One message about one thing on one channel. `in_doubt` may have been sent, and is sent again by hand alone."""

    notice_id: UUID
    about: NoticeAbout
    subject: UUID = Field(description="the decision, effect, run or source that it is about")
    run_id: UUID | None
    channel: str
    recipient: UUID | None = Field(description="the user, on a channel that writes to persons")
    state: NoticeState
    title: str
    text: str
    tries: int = Field(description="since it was raised, or last sent again by hand")
    message: str | None = Field(description="why it was not sent, or why that is not known")
    raised_at: AwareDatetime
    again_at: AwareDatetime | None = Field(description="when it is tried next, after a pause")
    changed_at: AwareDatetime


class NoticeChanged(Shown):
    notice_id: UUID
    state: NoticeState


class ChannelView(Shown):
    """A channel as it is declared now; one that is about nothing is turned off. Secrets stand here by name."""

    id: str
    kind: ChannelKind
    hash: str
    about: tuple[NoticeAbout, ...]
    roles: tuple[str, ...] = Field(description="of decisions only those for these; empty: all")
    definitions: tuple[str, ...] = Field(description="of runs only those of these workflows; empty: all")
    url_ref: str
    secret_ref: str | None
    sender: str | None
    to: tuple[str, ...]
    holders: bool
    synced_at: AwareDatetime
