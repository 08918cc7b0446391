"""One message to people about one thing on one channel: announced before it is sent, and tried until it was sent.

A webhook carries an id that its receiver knows again, so what may have been sent is sent once more under the same id.
An e-mail or a chat message would be read twice: what may have been sent is in doubt, and stays so unless somebody asks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, assert_never
from uuid import UUID

from contracts.base import Event, Frozen
from contracts.errors import Rejected
from contracts.events.notice import (
    NoticeFailed,
    NoticeInDoubt,
    NoticePutOff,
    NoticeRaised,
    NoticeRearmed,
    NoticeSending,
    NoticeSent,
)
from libs.domain import lifecycle
from libs.domain.core import NOTHING, Category, Decided, facts, replace
from minutebook.models.states import NoticeAbout

TRIES_MAX: Final = 8
"""After so many tries a notice is given up: with the pauses between, after about a day."""

PAUSE_FIRST: Final = timedelta(seconds=10)
PAUSE_GROWTH: Final = 4
PAUSE_MAX: Final = timedelta(hours=8)

DUE_WATCHDOG: Final = timedelta(seconds=60)
"""When a notice is looked at again, should its message have been lost."""


@dataclass(frozen=True, slots=True)
class State:
    """Where a notice stands. `claim` names the try that was announced last."""

    status: str = "absent"
    about: NoticeAbout = "decision.opened"
    subject: UUID | None = None
    run_id: UUID | None = None
    channel_id: str = ""
    recipient: UUID | None = None
    title: str = ""
    text: str = ""
    raised_at: datetime | None = None
    tries: int = 0
    claim: UUID | None = None
    over_at: datetime | None = None
    again_at: datetime | None = None
    message: str | None = None


class Raise(Frozen):
    """Say it. Nothing when it was said before."""

    fact: NoticeRaised


class Begin(Frozen):
    """Announce one try, which has ended everywhere after `within`."""

    claim: UUID
    within: timedelta


class Finish(Frozen):
    """The channel took it."""

    claim: UUID


class Fail(Frozen):
    """Surely not sent; `final` when no later try could do better."""

    claim: UUID
    message: str
    final: bool = False


class Lose(Frozen):
    """It may have been sent. `known_again` says that the channel knows a message it has had."""

    claim: UUID
    reason: str
    known_again: bool


class Expire(Frozen):
    """Nobody here is sending: what became of the try cannot be known once it has ended everywhere."""

    known_again: bool


class Rearm(Frozen):
    """Try it once more, though it was given up or is in doubt."""

    command_id: UUID


class Look(Frozen):
    """Nothing to say: only moves a wake that has passed."""


Command = Raise | Begin | Finish | Fail | Lose | Expire | Rearm | Look


def decide(command: Command, state: State, now: datetime) -> Decided:
    """Return what follows from a command; nothing when it is already true.

    Raises:
        Rejected: ``notice.not_found`` (404); ``notice.claim_lost`` (409) for a report of a try that is not the current
            one; ``notice.not_over`` (409) for one that was neither given up nor is in doubt.
    """
    if isinstance(command, Raise):
        return facts(command.fact) if state.status == "absent" else NOTHING
    if state.status == "absent":
        raise Rejected("notice.not_found", "there is no such notice", status=404)
    match command:
        case Begin():
            if state.status != "due" or (state.again_at is not None and now < state.again_at):
                return NOTHING
            over_at = now + command.within
            return facts(NoticeSending(at=now, claim=command.claim, tries=state.tries + 1, over_at=over_at))
        case Finish() | Fail() | Lose():
            return _report(command, state, now)
        case Expire():
            if state.status != "sending" or state.claim is None or state.over_at is None or now < state.over_at:
                return NOTHING
            return _lost(state, state.claim, "the try was announced and never reported", now, command.known_again)
        case Rearm():
            if state.status not in {"failed", "in_doubt"}:
                raise Rejected("notice.not_over", f"the notice is {state.status}; nothing is to be retried", status=409)
            return facts(NoticeRearmed(at=now, command_id=command.command_id))
        case Look():
            return NOTHING
        case _:
            assert_never(command)


def _report(command: Finish | Fail | Lose, state: State, now: datetime) -> Decided:
    if command.claim != state.claim or state.status != "sending":
        raise Rejected("notice.claim_lost", "this try is not the current one of its notice", status=409)
    match command:
        case Finish():
            return facts(NoticeSent(at=now, claim=command.claim))
        case Fail(final=True):
            return facts(NoticeFailed(at=now, message=command.message))
        case Fail():
            return _put_off(state, command.claim, command.message, now)
        case Lose():
            return _lost(state, command.claim, command.reason, now, command.known_again)
        case _:
            assert_never(command)


def _lost(state: State, claim: UUID, reason: str, now: datetime, known_again: bool) -> Decided:
    if known_again:
        return _put_off(state, claim, reason, now)
    return facts(NoticeInDoubt(at=now, claim=claim, reason=reason))


def _put_off(state: State, claim: UUID, message: str, now: datetime) -> Decided:
    if state.tries >= TRIES_MAX:
        return facts(NoticeFailed(at=now, message=f"tried {state.tries} times: {message}"))
    pause = min(PAUSE_FIRST * PAUSE_GROWTH ** (state.tries - 1), PAUSE_MAX)
    return facts(NoticePutOff(at=now, claim=claim, message=message, again_at=now + pause))


def evolve(state: State, event: Event) -> State:
    """The state after a fact. Total: what it does not know changes nothing."""
    match event:
        case NoticeRaised():
            return State(
                status="due",
                about=event.about,
                subject=event.subject,
                run_id=event.run_id,
                channel_id=event.channel_id,
                recipient=event.recipient,
                title=event.title,
                text=event.text,
                raised_at=event.at,
            )
        case NoticeSending():
            return replace(state, status="sending", claim=event.claim, tries=event.tries, over_at=event.over_at)
        case NoticeSent():
            return replace(state, status="sent", message=None)
        case NoticePutOff():
            return replace(state, status="due", again_at=event.again_at, message=event.message)
        case NoticeFailed():
            return replace(state, status="failed", message=event.message)
        case NoticeInDoubt():
            return replace(state, status="in_doubt", message=event.reason)
        case NoticeRearmed():
            return replace(state, status="due", tries=0, claim=None, over_at=None, again_at=None)
        case _:
            return state


def _wake_at(state: State, now: datetime) -> datetime | None:
    match state.status:
        case "due":
            return state.again_at if state.again_at is not None and state.again_at > now else now + DUE_WATCHDOG
        case "sending":
            return state.over_at
        case _:
            return None


def _columns(state: State) -> Mapping[str, Any]:
    return {
        "run_id": state.run_id,
        "about": state.about,
        "subject": state.subject,
        "channel": state.channel_id,
        "tries": state.tries,
        "raised_at": state.raised_at,
    }


CATEGORY: Final[Category[State]] = Category(
    name="notice",
    initial=State(),
    evolve=evolve,
    status=lambda state: state.status,
    columns=_columns,
    wake_at=_wake_at,
    run_id=lambda state: state.run_id,
    terminal=lifecycle.terminal(lifecycle.NOTICE),
)
