"""Facts in words: what people decide, and what was declared about people and workflows."""

from typing import Final

from contracts.base import Event
from contracts.events import decision as d
from contracts.events import definition as df
from contracts.events import identity as i
from contracts.events import schedule as s
from services.api.phrases import COMMENT_CHARS_MAX, many, moment, short

_ANSWERS: Final = {
    "approve": "approved",
    "request_changes": "asked for changes on",
    "reject": "rejected",
    "cancel": "cancelled the run over",
    "answer": "answered",
}


def of_decision(event: Event, birth: Event, _who: str) -> str | None:
    opened = birth if isinstance(birth, d.DecisionOpened) else None
    about = (opened.artifact_step or opened.step) if opened else "the decision"
    match event:
        case d.DecisionOpened():
            if event.question is not None:
                return f"{event.step} asks {event.role}: {short(event.question)}"
            ended = ", since an approval has ended" if event.previous is not None else ""
            return f"{event.step} asks {event.role} to decide on {about}{ended}"
        case d.DecisionSeated():
            voters = len({voter for seat in event.seats for voter in seat.voters})
            again = {"opened": "", "escalated": " since it was escalated", "left": " since one of them left"}
            return f"{many(voters, 'voter')} may vote on {about}{again[event.reason]}"
        case d.DecisionReassigned():
            whose = " in the place of somebody else" if event.from_user else ""
            return f"{event.by.name} let {event.to_user.email} decide on {about}{whose}{_said(event.reason)}"
        case d.DecisionRevised():
            wiped = f", which wiped {many(event.wiped, 'vote')}" if event.wiped else ""
            return f"{_voter(event)} revised {about}{wiped}{_said(event.comment)}"
        case d.DecisionVoted():
            return f"{_voter(event)} {_ANSWERS[event.outcome]} {about}, which is one vote{_said(event.comment)}"
        case d.DecisionAnswered():
            revised = " with a revision" if event.revised else ""
            if event.votes:
                last = _ANSWERS[event.votes[-1].outcome]
                came = f", and {len(event.votes)} votes came to {event.outcome}" if len(event.votes) > 1 else ""
                return f"{_voter(event)} {last} {about}{came}{_said(event.comment)}"
            return f"{_voter(event)} {_ANSWERS[event.outcome]} {about}{revised}{_said(event.comment)}"
        case d.DecisionReminded():
            return f"the decision on {about} was due and nobody had answered"
        case d.DecisionEscalated():
            return f"the decision on {about} was due again: {event.role} may answer it, too"
        case d.DecisionWithdrawn():
            return f"the decision on {about} was withdrawn: {short(event.reason)}"
        case _:
            return None


def _voter(event: d.DecisionRevised | d.DecisionVoted | d.DecisionAnswered) -> str:
    instead = f" for {event.on_behalf_of.email}" if event.on_behalf_of else ""
    return f"{event.by.name}{instead}"


def _said(comment: str | None) -> str:
    return f": {short(comment, COMMENT_CHARS_MAX)}" if comment else ""


def of_schedule(event: Event, birth: Event, _who: str) -> str | None:
    line = _line(birth) if isinstance(birth, s.ScheduleDeclared) else "the schedule"
    match event:
        case s.ScheduleDeclared():
            return f"{event.definition_id} was given the schedule {_line(event)}"
        case s.ScheduleFired():
            return f"the slot {event.slot} of {line} started the run {event.run_id}"
        case s.ScheduleSkipped():
            return (
                f"{many(event.count, 'slot')} of {line} from {event.slot} on started nothing ({event.reason}): "
                f"{short(event.detail)}"
            )
        case s.SchedulePaused():
            return f"{event.by.name} paused {line}"
        case s.ScheduleResumed():
            return f"{event.by.name} resumed {line}"
        case s.ScheduleRetired():
            return f"{line} was retired: {short(event.reason)}"
        case _:
            return None


def _line(declared: s.ScheduleDeclared) -> str:
    if declared.cron is not None:
        return f"{declared.cron!r} in {declared.timezone}"
    return f"every {declared.every_seconds or 0} s"


def of_definition(event: Event, _birth: Event, who: str) -> str | None:
    match event:
        case df.DefinitionSynced():
            share = f" for {event.canary_percent} % of new runs" if event.canary_percent is not None else ""
            return f"{who} declared {event.definition_id} at {event.hash[:12]}{share}"
        case df.DefinitionPromoted():
            return f"{who} promoted the version {event.hash[:12]} for every new run"
        case df.SourceSynced():
            return f"{who} declared the event source {event.source_id}"
        case df.ServerSynced():
            return f"{who} declared the server {event.server_id}"
        case df.ChannelSynced():
            return f"{who} declared the channel {event.channel_id}"
        case _:
            return None


def of_identity(event: Event, _birth: Event, who: str) -> str | None:
    match event:
        case i.TenantGroupCreated() | i.TenantCreated() | i.ProjectCreated():
            return f"{who} created {event.name}"
        case i.UserRegistered():
            return f"{who} registered {event.email}"
        case i.UserDeactivated():
            return f"{who} deactivated the user"
        case i.UserErased():
            return f"{event.by.name} had the person erased: {short(event.reason)}"
        case i.GrantGiven():
            return f"{event.by.name} gave a grant for the server {event.server_id}"
        case i.GrantRevoked():
            return f"{event.by.name} revoked the grant"
        case i.Delegated():
            until = moment(event.ends_at)
            return f"{event.from_user.email} lets {event.to_user.email} decide for them until {until}"
        case i.DelegationEnded():
            return f"{event.by.name} ended the delegation"
        case i.KeyMinted():
            return f"{who} minted the key {event.name}"
        case i.KeyRevoked():
            return f"{who} revoked the key"
        case _:
            return None
