"""Facts in words: one sentence for people per event type.

`birth` is the first fact of the same stream: it says which step, tool or artefact the later ones are about.
"""

from typing import Final

from contracts.base import Actor, Event
from contracts.events import admission as ad
from contracts.events import attempt as a
from contracts.events import run as r
from contracts.events import wait as w
from services.api.phrases import (
    COMMENT_CHARS_MAX,
    asked,
    by,
    clock,
    key,
    many,
    moment,
    money,
    nth,
    short,
)
from services.api.words_outside import of_effect, of_inbound, of_notice
from services.api.words_people import of_decision, of_definition, of_identity, of_schedule

_WHY_BACK: Final = {
    "gate": "its gate refused",
    "request_changes": "changes were asked for",
    "timeout": "nobody answered in time",
}

_OTHERS: Final = (of_inbound, of_schedule, of_definition, of_identity, of_notice)


def describe(event: Event, *, birth: Event, actor: Actor) -> str:
    """Return the fact as one sentence, without the time.

    Raises:
        NotImplementedError: the event type has no words; a test holds that none is forgotten.
    """
    for words in (_of_run, _of_turn, _of_step, _of_waiting, of_decision, _of_attempt, of_effect, *_OTHERS):
        text = words(event, birth, actor.name)
        if text is not None:
            return text
    raise NotImplementedError(f"{type(event).__name__} has no words")


def _of_run(event: Event, _birth: Event, who: str) -> str | None:
    match event:
        case r.RunCreated():
            return _created(event, who)
        case r.RunForked():
            kept = f", with {many(len(event.effects), 'write')} of it" if event.effects else ""
            return f"the run goes on from fact {event.at_version} of the run {event.parent}{kept}"
        case r.RunStarted():
            return "the run started"
        case r.RunStageEntered():
            return f"the run entered the stage {event.stage}"
        case r.RunLooped():
            return (
                f"{event.from_step} sent the run back to {event.to_step}, because {_WHY_BACK[event.reason]} "
                f"(time {event.count})"
            )
        case r.RunParked():
            return f"the run waits for {'an event' if event.on == 'event' else f'a {event.on}'}"
        case r.RunUnparked():
            return "the run goes on"
        case r.RunSuspended():
            at = f" at {event.step}" if event.step else ""
            return f"{by(event.by, who)} suspended the run{at}: {short(event.reason)}"
        case r.RunResumed():
            return f"{by(event.by, who)} resumed the run"
        case r.RunCompleted():
            return f"the run completed: {event.outcome}"
        case r.RunFailed():
            at = f" at {event.step}" if event.step else ""
            return f"the run failed{at} ({event.failure_class}): {short(event.reason)}"
        case r.RunCancelled():
            return f"{by(event.by, who)} cancelled the run: {short(event.reason)}"
        case _:
            return None


def _created(event: r.RunCreated, who: str) -> str:
    variant = f" as variant {event.variant}" if event.variant else ""
    parent = f" after the run {event.parent}" if event.parent else ""
    filed = f" in project {event.project_id}" if event.project_id else ""
    more = f"{variant}{parent}{filed}"
    match event.trigger.kind:
        case "event":
            return f"an event of {event.trigger.source} created the run for {event.initiated_by.email}{more}"
        case "schedule":
            slot = f" of {event.trigger.slot}" if event.trigger.slot else ""
            return f"a schedule's slot{slot} created the run for {event.initiated_by.email}{more}"
        case "manual":
            return f"{who} created the run{more}"


def _of_turn(event: Event, _birth: Event, _who: str) -> str | None:
    """A run's turn under its concurrency key, as the run's facts and the key's own tell it."""
    match event:
        case r.RunAdmissionRequested():
            works = ", while it works on" if event.working else ""
            return f"the run asked for its turn under {key(event.key)}, which lets {event.limit} work{works}"
        case r.RunHeld():
            return f"the run is held: others work under {key(event.key)}"
        case r.RunAdmissionReturned():
            return "the run gave its turn back"
        case r.RunSuperseded():
            return f"the newer run {event.by} took the place of this one before it began"
        case ad.AdmissionGranted():
            return f"the run {event.run_id} has its turn under {key(event.key)}"
        case ad.AdmissionQueued():
            return f"the run {event.run_id} waits for its turn under {key(event.key)}"
        case ad.AdmissionSuperseded():
            return f"the newer run {event.by} took the place of {event.run_id}, which waited"
        case ad.AdmissionRefused():
            return f"the run {event.run_id} was refused: {short(event.reason)}"
        case ad.AdmissionReturned():
            return f"the run {event.run_id} gave its turn back"
        case _:
            return None


def _of_step(event: Event, _birth: Event, _who: str) -> str | None:
    match event:
        case r.RunStepQueued():
            return f"{event.step} was queued{nth(event.round, event.attempt)}"
        case r.RunStepWaiting():
            about = f" about {event.artifact_step}" if event.artifact_step else ""
            return f"{event.step} waits for a decision{about}"
        case r.RunStepWriting():
            return f"{event.step} writes {event.effect_key}"
        case r.RunBranchesEntered():
            return f"the branches of {event.step} began"
        case r.RunItemsEntered():
            return f"{event.step} began with {many(event.count, 'item')}"
        case r.RunStepInherited():
            return f"{event.step} was taken over as the earlier run had finished it"
        case r.RunStepCancelled():
            return f"{event.step} was cancelled: {short(event.reason)}"
        case r.RunStepEscalated():
            return (
                f"{event.step} failed ({event.failure_class}), and {event.role} is asked how it goes on: "
                f"{short(event.message)}"
            )
        case r.RunStepSucceeded():
            return f"{event.step} succeeded" + (f" with {event.outcome}" if event.outcome else "")
        case r.RunStepSkipped():
            return f"{event.step} was skipped: {short(event.reason)}"
        case r.RunApprovalExpired():
            return (
                f"the approval of {event.step} held until {moment(event.valid_until)}, before {event.write} could use "
                "it: it is asked for again"
            )
        case r.RunStepRetrying():
            return (
                f"{event.step} failed ({event.failure_class}) and is tried again at {clock(event.not_before)}: "
                f"{short(event.message)}"
            )
        case r.RunStepFailed():
            return f"{event.step} failed ({event.failure_class}): {short(event.message)}"
        case r.RunArtifactApproved():
            return f"the artefact of {event.step} was approved" + (" as revised" if event.revised else "")
        case r.RunArtifactExecuted():
            return f"the artefact of {event.step} was written out"
        case _:
            return None


def _of_waiting(event: Event, birth: Event, who: str) -> str | None:
    """Steps that wait for a moment, a person or an event, and the waits themselves."""
    opened = birth if isinstance(birth, w.WaitOpened) else None
    step = opened.step if opened else "the step"
    match event:
        case r.RunStepDelayed():
            return f"{event.step} begins at {moment(event.until)}"
        case r.RunManualOpened():
            until = f" until {moment(event.until)}" if event.until else ""
            return f"{event.step} waits for {event.role or 'its initiator'} to complete it{until}"
        case r.RunManualCompleted():
            comment = f": {short(event.comment, COMMENT_CHARS_MAX)}" if event.comment else ""
            return f"{event.by.name} completed {event.step}{comment}"
        case r.RunEventAwaited():
            until = f" until {moment(event.until)}" if event.until else ""
            return f"{event.step} waits for an event of {event.source}{asked(event.match)}{until}"
        case r.RunEventTaken():
            return f"{event.step} took its event"
        case w.WaitOpened():
            return f"a wait for an event of {event.source} was opened for {event.step}"
        case w.WaitLookedBack():
            return f"no event that came before is the one that {step} waits for"
        case w.WaitMatched():
            by = f"{event.by.name} handed" if event.by else "there came"
            return f"{by} {event.event} ({event.external_id}) to {step}"
        case w.WaitClosed():
            return f"{step} waits for no event any more: {short(event.reason)}"
        case _:
            return None


def _of_attempt(event: Event, birth: Event, _who: str) -> str | None:
    step = birth.step if isinstance(birth, a.AttemptQueued) else "the step"
    match event:
        case a.AttemptQueued():
            return f"an attempt at {step} is ready for {event.executor}{nth(event.round, event.number)}"
        case a.AttemptStarted():
            return f"{event.runner} started {step}"
        case a.AttemptLeaseLost():
            return f"the runner of {step} was lost (time {event.count}); another may take over"
        case a.AttemptSucceeded():
            return f"{step} produced its output for {money(event.cost_microdollars)}"
        case a.AttemptFailed():
            return f"the attempt at {step} failed ({event.failure_class}): {short(event.message)}"
        case a.AttemptCancelled():
            return f"the attempt at {step} was cancelled: {short(event.reason)}"
        case _:
            return None
