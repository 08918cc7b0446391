"""Facts in words: one sentence for people per event type.

`birth` is the first fact of the same stream: it says which step, tool or artefact the later ones are about.
"""

from datetime import datetime
from typing import Final

from contracts.base import Actor, Event, JsonObject
from contracts.events import admission as ad
from contracts.events import attempt as a
from contracts.events import decision as d
from contracts.events import definition as df
from contracts.events import effect as ef
from contracts.events import identity as i
from contracts.events import inbound as n
from contracts.events import run as r
from contracts.events import schedule as s
from contracts.events import wait as w

COMMENT_CHARS_MAX: Final = 300
MESSAGE_CHARS_MAX: Final = 300
KEY_CHARS_MAX: Final = 100
MATCH_CHARS_MAX: Final = 200


def describe(event: Event, *, birth: Event, actor: Actor) -> str:
    """Return the fact as one sentence, without the time.

    Raises:
        NotImplementedError: the event type has no words; a test holds that none is forgotten.
    """
    for words in (_of_run, _of_turn, _of_step, _of_waiting, _of_decision, _of_attempt, _of_effect, *_OTHERS):
        text = words(event, birth, actor.name)
        if text is not None:
            return text
    raise NotImplementedError(f"{type(event).__name__} has no words")


def _of_run(event: Event, _birth: Event, who: str) -> str | None:
    match event:
        case r.RunCreated():
            return _created(event, who)
        case r.RunForked():
            kept = f", with {_many(len(event.effects), 'write')} of it" if event.effects else ""
            return f"the run goes on from fact {event.at_version} of the run {event.parent}{kept}"
        case r.RunStarted():
            return "the run started"
        case r.RunStageEntered():
            return f"the run entered the stage {event.stage}"
        case r.RunLooped():
            why = "its gate refused" if event.reason == "gate" else "changes were asked for"
            return f"{event.from_step} sent the run back to {event.to_step}, because {why} (time {event.count})"
        case r.RunParked():
            return f"the run waits for {'an event' if event.on == 'event' else f'a {event.on}'}"
        case r.RunUnparked():
            return "the run goes on"
        case r.RunSuspended():
            at = f" at {event.step}" if event.step else ""
            return f"{_by(event.by, who)} suspended the run{at}: {_short(event.reason)}"
        case r.RunResumed():
            return f"{_by(event.by, who)} resumed the run"
        case r.RunCompleted():
            return f"the run completed: {event.outcome}"
        case r.RunFailed():
            at = f" at {event.step}" if event.step else ""
            return f"the run failed{at} ({event.failure_class}): {_short(event.reason)}"
        case r.RunCancelled():
            return f"{_by(event.by, who)} cancelled the run: {_short(event.reason)}"
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
            return f"the run asked for its turn under {_key(event.key)}, which lets {event.limit} work{works}"
        case r.RunHeld():
            return f"the run is held: others work under {_key(event.key)}"
        case r.RunAdmissionReturned():
            return "the run gave its turn back"
        case r.RunSuperseded():
            return f"the newer run {event.by} took the place of this one before it began"
        case ad.AdmissionGranted():
            return f"the run {event.run_id} has its turn under {_key(event.key)}"
        case ad.AdmissionQueued():
            return f"the run {event.run_id} waits for its turn under {_key(event.key)}"
        case ad.AdmissionSuperseded():
            return f"the newer run {event.by} took the place of {event.run_id}, which waited"
        case ad.AdmissionRefused():
            return f"the run {event.run_id} was refused: {_short(event.reason)}"
        case ad.AdmissionReturned():
            return f"the run {event.run_id} gave its turn back"
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
        case r.RunItemsEntered():
            return f"{event.step} began with {_many(event.count, 'item')}"
        case r.RunStepInherited():
            return f"{event.step} was taken over as the earlier run had finished it"
        case r.RunStepCancelled():
            return f"{event.step} was cancelled: {_short(event.reason)}"
        case r.RunStepEscalated():
            return (
                f"{event.step} failed ({event.failure_class}), and {event.role} is asked how it goes on: "
                f"{_short(event.message)}"
            )
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


def _of_waiting(event: Event, birth: Event, who: str) -> str | None:
    """Steps that wait for a moment, a person or an event, and the waits themselves."""
    opened = birth if isinstance(birth, w.WaitOpened) else None
    step = opened.step if opened else "the step"
    match event:
        case r.RunStepDelayed():
            return f"{event.step} begins at {_moment(event.until)}"
        case r.RunManualOpened():
            until = f" until {_moment(event.until)}" if event.until else ""
            return f"{event.step} waits for {event.role or 'its initiator'} to complete it{until}"
        case r.RunManualCompleted():
            comment = f": {_short(event.comment, COMMENT_CHARS_MAX)}" if event.comment else ""
            return f"{event.by.name} completed {event.step}{comment}"
        case r.RunEventAwaited():
            until = f" until {_moment(event.until)}" if event.until else ""
            return f"{event.step} waits for an event of {event.source}{_asked(event.match)}{until}"
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
            return f"{step} waits for no event any more: {_short(event.reason)}"
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
        case d.DecisionReminded():
            return f"the decision on {about} was due and nobody had answered"
        case d.DecisionEscalated():
            return f"the decision on {about} was due again: {event.role} may answer it, too"
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


def _of_inbound(event: Event, _birth: Event, _who: str) -> str | None:
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
        f"{verb} {_many(len(things), noun)}"
        for verb, things, noun in (
            ("started", event.started, "run"),
            ("resumed", event.resumed, "run"),
            ("skipped", event.skipped, "trigger"),
        )
        if things
    ]
    if told:
        return " and ".join(told)
    return "matched nothing" + (f": {_short(event.unmatched)}" if event.unmatched else "")


def _of_schedule(event: Event, birth: Event, _who: str) -> str | None:
    line = _line(birth) if isinstance(birth, s.ScheduleDeclared) else "the schedule"
    match event:
        case s.ScheduleDeclared():
            return f"{event.definition_id} was given the schedule {_line(event)}"
        case s.ScheduleFired():
            return f"the slot {event.slot} of {line} started the run {event.run_id}"
        case s.ScheduleSkipped():
            return (
                f"{_many(event.count, 'slot')} of {line} from {event.slot} on started nothing ({event.reason}): "
                f"{_short(event.detail)}"
            )
        case s.SchedulePaused():
            return f"{event.by.name} paused {line}"
        case s.ScheduleResumed():
            return f"{event.by.name} resumed {line}"
        case s.ScheduleRetired():
            return f"{line} was retired: {_short(event.reason)}"
        case _:
            return None


def _line(declared: s.ScheduleDeclared) -> str:
    if declared.cron is not None:
        return f"{declared.cron!r} in {declared.timezone}"
    return f"every {declared.every_seconds or 0} s"


def _of_definition(event: Event, _birth: Event, who: str) -> str | None:
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
        case _:
            return None


def _of_identity(event: Event, _birth: Event, who: str) -> str | None:
    match event:
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


_OTHERS: Final = (_of_inbound, _of_schedule, _of_definition, _of_identity)


def _by(actor: Actor | None, who: str) -> str:
    """The person that a fact names, else whoever wrote it."""
    return actor.name if actor is not None else who


def _key(key: str) -> str:
    return f"the key {_short(key, KEY_CHARS_MAX)!r}" if key else "the definition's one key"


def _asked(match: JsonObject) -> str:
    """What an event must carry, as `name=value` of plain values."""
    told = ", ".join(f"{name}={value}" for name, value in match.items())
    return f" with {_short(told, MATCH_CHARS_MAX)}" if told else ""


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


def _moment(at: datetime) -> str:
    """A moment that may be days away."""
    return at.strftime("%Y-%m-%d %H:%M:%S %Z")


def _short(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    line = " ".join(text.split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"
