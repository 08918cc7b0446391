"""Facts in words: one sentence for people per event type.

`birth` is the first fact of the same stream: it says which step, tool or artefact the later ones are about.
"""

from datetime import datetime
from typing import Final

from contracts.base import Actor, Event
from contracts.events import attempt as a
from contracts.events import decision as d
from contracts.events import definition as df
from contracts.events import effect as ef
from contracts.events import identity as i
from contracts.events import inbound as n
from contracts.events import run as r

COMMENT_CHARS_MAX: Final = 300
MESSAGE_CHARS_MAX: Final = 300


def describe(event: Event, *, birth: Event, actor: Actor) -> str:
    """Return the fact as one sentence, without the time.

    Raises:
        NotImplementedError: the event type has no words; a test holds that none is forgotten.
    """
    for words in (_of_run, _of_step, _of_decision, _of_attempt, _of_effect, _of_others):
        text = words(event, birth, actor.name)
        if text is not None:
            return text
    raise NotImplementedError(f"{type(event).__name__} has no words")


def _of_run(event: Event, _birth: Event, who: str) -> str | None:
    match event:
        case r.RunCreated():
            filed = f" in project {event.project_id}" if event.project_id else ""
            if event.trigger.kind == "event":
                return f"an event of {event.trigger.source} created the run for {event.initiated_by.email}{filed}"
            return f"{who} created the run{filed}"
        case r.RunStarted():
            return "the run started"
        case r.RunStageEntered():
            return f"the run entered the stage {event.stage}"
        case r.RunLooped():
            why = "its gate refused" if event.reason == "gate" else "changes were asked for"
            return f"{event.from_step} sent the run back to {event.to_step}, because {why} (time {event.count})"
        case r.RunParked():
            return f"the run waits for a {event.on}"
        case r.RunUnparked():
            return "the run goes on"
        case r.RunSuspended():
            at = f" at {event.step}" if event.step else ""
            return f"{who} suspended the run{at}: {_short(event.reason)}"
        case r.RunResumed():
            return f"{who} resumed the run"
        case r.RunCompleted():
            return f"the run completed: {event.outcome}"
        case r.RunFailed():
            at = f" at {event.step}" if event.step else ""
            return f"the run failed{at} ({event.failure_class}): {_short(event.reason)}"
        case r.RunCancelled():
            return f"{who} cancelled the run: {_short(event.reason)}"
        case _:
            return None


def _of_step(event: Event, _birth: Event, _who: str) -> str | None:
    match event:
        case r.RunStepQueued():
            return f"{event.step} was queued{_nth(event.round, event.attempt)}"
        case r.RunStepWaiting():
            about = f" about {event.artifact_step}" if event.artifact_step else ""
            return f"{event.step} waits for a decision{about}"
        case r.RunStepWriting():
            return f"{event.step} writes {event.effect_key}"
        case r.RunBranchesEntered():
            return f"the branches of {event.step} began"
        case r.RunStepSucceeded():
            return f"{event.step} succeeded" + (f" with {event.outcome}" if event.outcome else "")
        case r.RunStepRetrying():
            return (
                f"{event.step} failed ({event.failure_class}) and is tried again at {_clock(event.not_before)}: "
                f"{_short(event.message)}"
            )
        case r.RunStepFailed():
            return f"{event.step} failed ({event.failure_class}): {_short(event.message)}"
        case r.RunArtifactApproved():
            return f"the artefact of {event.step} was approved" + (" as revised" if event.revised else "")
        case r.RunArtifactExecuted():
            return f"the artefact of {event.step} was written out"
        case _:
            return None


_ANSWERS: Final = {
    "approve": "approved",
    "request_changes": "asked for changes on",
    "reject": "rejected",
    "cancel": "cancelled the run over",
}


def _of_decision(event: Event, birth: Event, who: str) -> str | None:
    opened = birth if isinstance(birth, d.DecisionOpened) else None
    about = (opened.artifact_step or opened.step) if opened else "the decision"
    match event:
        case d.DecisionOpened():
            return f"{event.step} asks {event.role} to decide on {about}"
        case d.DecisionAnswered():
            revised = " with a revision" if event.revised else ""
            comment = f": {_short(event.comment, COMMENT_CHARS_MAX)}" if event.comment else ""
            return f"{event.by.name or who} {_ANSWERS[event.outcome]} {about}{revised}{comment}"
        case d.DecisionWithdrawn():
            return f"the decision on {about} was withdrawn: {_short(event.reason)}"
        case _:
            return None


def _of_attempt(event: Event, birth: Event, _who: str) -> str | None:
    step = birth.step if isinstance(birth, a.AttemptQueued) else "the step"
    match event:
        case a.AttemptQueued():
            return f"an attempt at {step} is ready for {event.executor}{_nth(event.round, event.number)}"
        case a.AttemptStarted():
            return f"{event.runner} started {step}"
        case a.AttemptLeaseLost():
            return f"the runner of {step} was lost (time {event.count}); another may take over"
        case a.AttemptSucceeded():
            return f"{step} produced its output for {_money(event.cost_microdollars)}"
        case a.AttemptFailed():
            return f"the attempt at {step} failed ({event.failure_class}): {_short(event.message)}"
        case a.AttemptCancelled():
            return f"the attempt at {step} was cancelled: {_short(event.reason)}"
        case _:
            return None


def _of_effect(event: Event, birth: Event, _who: str) -> str | None:
    what = f"{birth.system}.{birth.tool}" if isinstance(birth, ef.EffectDeclared) else "the write"
    match event:
        case ef.EffectDeclared():
            return f"{event.step} is to call {what} once, as {event.key}"
        case ef.EffectPending():
            return f"{what} is being called"
        case ef.EffectSucceeded():
            return f"{what} was written" + (f": {event.reference}" if event.reference else "")
        case ef.EffectFailed():
            return f"{what} was not written ({event.failure_class}): {_short(event.message)}"
        case ef.EffectInDoubt():
            return f"{what} may have been written and cannot be known: {_short(event.reason)}"
        case ef.EffectRearmed():
            return f"{what} may be called again (time {event.arm + 1})"
        case ef.EffectCancelled():
            return f"{what} will not be called: {_short(event.reason)}"
        case _:
            return None


def _of_others(event: Event, _birth: Event, who: str) -> str | None:
    match event:
        case n.InboundReceived():
            return f"{event.source} sent {event.event} ({event.external_id})"
        case n.InboundRouted():
            return f"the delivery started {_many(len(event.started), 'run')}" + (
                f" and skipped {_many(len(event.skipped), 'trigger')}" if event.skipped else ""
            )
        case df.DefinitionSynced():
            return f"{who} declared {event.definition_id} at {event.hash[:12]}"
        case df.SourceSynced():
            return f"{who} declared the event source {event.source_id}"
        case df.ServerSynced():
            return f"{who} declared the server {event.server_id}"
        case i.TenantGroupCreated() | i.TenantCreated() | i.ProjectCreated():
            return f"{who} created {event.name}"
        case i.UserRegistered():
            return f"{who} registered {event.email}"
        case i.UserDeactivated():
            return f"{who} deactivated the user"
        case i.KeyMinted():
            return f"{who} minted the key {event.name}"
        case i.KeyRevoked():
            return f"{who} revoked the key"
        case _:
            return None


def _nth(round_: int, number: int) -> str:
    """Which round and attempt, said only when it is not the first."""
    said = [f"round {round_}"] if round_ > 1 else []
    if number > 1:
        said.append(f"attempt {number}")
    return f" ({', '.join(said)})" if said else ""


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _money(microdollars: int) -> str:
    return f"${microdollars / 1_000_000:.4f}"


def _clock(at: datetime) -> str:
    return at.strftime("%H:%M:%S %Z")


def _short(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    line = " ".join(text.split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"
