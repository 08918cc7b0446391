"""Facts in words: what comes from outside, what goes there, and who is told."""

from contracts.base import Event
from contracts.events import effect as ef
from contracts.events import inbound as n
from contracts.events import notice as no
from services.api.phrases import clock, many, short


def of_effect(event: Event, birth: Event, _who: str) -> str | None:
    what = f"{birth.system}.{birth.tool}" if isinstance(birth, ef.EffectDeclared) else "the write"
    match event:
        case ef.EffectDeclared():
            return f"{event.step} is to call {what} once, as {event.key}"
        case ef.EffectPending():
            return f"{what} is being called"
        case ef.EffectSucceeded():
            return f"{what} was written" + (f": {event.reference}" if event.reference else "")
        case ef.EffectFailed():
            return f"{what} was not written ({event.failure_class}): {short(event.message)}"
        case ef.EffectInDoubt():
            return f"{what} may have been written and cannot be known: {short(event.reason)}"
        case ef.EffectProbed():
            found = {
                "absent": "the target does not show it",
                "ambiguous": "the target shows more than one that it may be",
                "unreachable": "the target could not be asked",
            }
            return f"{what} was looked for (time {event.tries}), and {found[event.result]}: {short(event.message)}"
        case ef.EffectSettled():
            return settled(event, what)
        case ef.EffectRearmed():
            return f"{what} may be called again (time {event.arm + 1})"
        case ef.EffectCancelled():
            return f"{what} will not be called: {short(event.reason)}"
        case _:
            return None


def settled(event: ef.EffectSettled, what: str) -> str:
    """A verdict, with whose word it is."""
    by = "the target shows" if event.source == "probe" else f"{event.by.name} says"
    comment = f": {short(event.comment)}" if event.comment else ""
    match event.verdict:
        case "landed":
            return f"{by} that {what} was written" + (f": {event.reference}" if event.reference else "") + comment
        case "not_landed":
            return f"{by} that {what} was not written{comment}"
        case "try_again":
            return f"{by} that {what} was not written, and it is tried again{comment}"


def of_inbound(event: Event, _birth: Event, _who: str) -> str | None:
    match event:
        case n.InboundReceived():
            return f"{event.source} sent {event.event} ({event.external_id})"
        case n.InboundRouted():
            return f"the event {_followed(event)}"
        case n.InboundReplayed():
            return f"{event.by.name} had the event routed again: it {_followed(event)}"
        case n.InboundDelivered():
            return f"{event.by.name} handed the event to {event.step} of the run {event.run_id}"
        case n.InboundBodyDiffered():
            return "another delivery under the same id had another body, which changes nothing"
        case _:
            return None


def _followed(event: n.InboundRouted | n.InboundReplayed) -> str:
    told = [
        f"{verb} {many(len(things), noun)}"
        for verb, things, noun in (
            ("started", event.started, "run"),
            ("resumed", event.resumed, "run"),
            ("skipped", event.skipped, "trigger"),
        )
        if things
    ]
    if told:
        return " and ".join(told)
    return "matched nothing" + (f": {short(event.unmatched)}" if event.unmatched else "")


def of_notice(event: Event, birth: Event, _who: str) -> str | None:
    channel = birth.channel_id if isinstance(birth, no.NoticeRaised) else "the channel"
    match event:
        case no.NoticeRaised():
            return f"{event.channel_id} is to be told of {event.about}: {short(event.title)}"
        case no.NoticeSending():
            return f"{channel} is being told" + (f" (try {event.tries})" if event.tries > 1 else "")
        case no.NoticeSent():
            return f"{channel} was told"
        case no.NoticePutOff():
            return f"{channel} was not told and is tried again at {clock(event.again_at)}: {short(event.message)}"
        case no.NoticeFailed():
            return f"{channel} could not be told: {short(event.message)}"
        case no.NoticeInDoubt():
            return f"{channel} may have been told and cannot be asked: {short(event.reason)}"
        case no.NoticeRearmed():
            return f"{channel} is to be told once more"
        case _:
            return None
