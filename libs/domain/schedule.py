"""One line of a definition's schedules: which slot is next, and what became of those before.

A cron line has slots on the clock of its zone, and each is handled once: `handled_until` only grows. An interval has no
slots of its own; it is due again so long after its last run ended, so its runs never overlap and never pile up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal, assert_never
from uuid import UUID

from contracts import ids
from contracts.base import Actor, Event, JsonObject, Principal
from contracts.errors import Rejected
from contracts.events import schedule as e
from contracts.events.definition import DefinitionSynced, ScheduleTrigger
from contracts.events.run import RunCreated, Trigger, UserRef
from libs.domain import lifecycle
from libs.domain.access import is_administrator
from libs.domain.core import NOTHING, Birth, Category, Decided, facts, no_run
from libs.domain.slots import line_of, moment, read, trigger_key
from libs.language.cron import Slot
from libs.language.paths import MISSING, resolve

LATE_AFTER: Final = timedelta(minutes=10)
"""A slot that is older is skipped: after an outage its run would come at a time that nobody meant."""

LOOK_AGAIN: Final = timedelta(seconds=60)
"""How often an interval looks whether its run has ended, at the latest, and how often an unreadable line is told of."""

SLOTS_PER_LOOK_MAX: Final = 5_000
"""Slots that one command goes through, a fifth of a second's work; what is left is due at once."""

STARTS_PER_LOOK_MAX: Final = 100

Reason = Literal["late", "overlap", "no_owner", "no_project", "context"]


@dataclass(frozen=True, slots=True)
class State:
    """`handled_until` is the moment up to which every slot was fired or skipped; `last_run` is the run fired last.

    `paused_by` outlives a retirement: a line that comes back is still paused.
    """

    status: str = "absent"
    definition_id: str = ""
    cron: str | None = None
    every_seconds: int | None = None
    timezone: str = "UTC"
    handled_until: datetime | None = None
    last_run: UUID | None = None
    paused_by: Actor | None = None

    @property
    def line(self) -> str:
        """What tells it from the definition's other lines."""
        return line_of(self.cron, self.every_seconds, self.timezone)

    @property
    def every(self) -> timedelta | None:
        return None if self.every_seconds is None else timedelta(seconds=self.every_seconds)


@dataclass(frozen=True, slots=True)
class LastRun:
    """The run that was fired last, as its head is now."""

    is_open: bool
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What a firing needs from elsewhere. `owner` is the active user of `run_as`; `context` are the defaults."""

    tenant_group: UUID
    version: DefinitionSynced | None
    trigger: ScheduleTrigger | None
    owner: UserRef | None = None
    has_project: bool = True
    context: JsonObject = field(default_factory=dict)
    last_run: LastRun | None = None


@dataclass(frozen=True, slots=True)
class Declare:
    """The version that new runs take has this line."""

    definition_id: str
    cron: str | None
    every_seconds: int | None
    timezone: str


@dataclass(frozen=True, slots=True)
class Retire:
    reason: str


@dataclass(frozen=True, slots=True)
class Pause:
    principal: Principal


@dataclass(frozen=True, slots=True)
class Resume:
    principal: Principal


@dataclass(frozen=True, slots=True)
class Look:
    """The clock may have come to a slot. `known` is None until its owner has read what an active line needs."""

    schedule_id: UUID
    known: Known | None = None


Command = Declare | Retire | Pause | Resume | Look


def trigger_of(version: DefinitionSynced | None, line: str) -> ScheduleTrigger | None:
    """The trigger that a version has for a line; None where it has none or is disabled."""
    if version is None or not version.enabled:
        return None
    return next((t for t in version.schedules if line_of(t.cron, t.every_seconds, t.timezone) == line), None)


def decide(command: Command, state: State, now: datetime) -> Decided:
    """Return the facts that follow from a command; nothing when they are already true.

    Raises:
        contracts.errors.Rejected: ``schedule.not_found`` (404), ``schedule.not_yours`` (403), ``schedule.retired``
            (409), ``schedule.unreadable`` (422) when the line or its zone cannot be read any more.
    """
    match command:
        case Declare():
            return _declare(command, state, now)
        case Retire():
            if state.status in {"absent", "retired"}:
                return NOTHING
            return facts(e.ScheduleRetired(at=now, reason=command.reason))
        case Pause():
            _may_change(command.principal, state)
            if state.status == "paused":
                return NOTHING
            return facts(e.SchedulePaused(at=now, by=command.principal.actor))
        case Resume():
            _may_change(command.principal, state)
            if state.status == "active":
                return NOTHING
            return facts(e.ScheduleResumed(at=now, by=command.principal.actor))
        case Look():
            return _look(command, state, now)
        case _:
            assert_never(command)


def _declare(command: Declare, state: State, now: datetime) -> Decided:
    if state.status in {"active", "paused"}:
        return NOTHING
    declared = e.ScheduleDeclared(
        at=now,
        definition_id=command.definition_id,
        cron=command.cron,
        every_seconds=command.every_seconds,
        timezone=command.timezone,
    )
    if state.paused_by is None:
        return facts(declared)
    return facts(declared, e.SchedulePaused(at=now, by=state.paused_by))


def _may_change(principal: Principal, state: State) -> None:
    if state.status == "absent":
        raise Rejected("schedule.not_found", "there is no such schedule", status=404)
    if not is_administrator(principal):
        raise Rejected("schedule.not_yours", "schedules are paused and resumed by administrators", status=403)
    if state.status == "retired":
        raise Rejected(
            "schedule.retired",
            f"the version of {state.definition_id} that new runs take does not have this line any more",
            status=409,
        )


def _look(command: Look, state: State, now: datetime) -> Decided:
    known = command.known
    if state.status != "active" or known is None:
        return NOTHING
    if known.version is None or known.trigger is None:
        return facts(e.ScheduleRetired(at=now, reason=retirement(known.version)))
    slots = _due(state, known.last_run, now)
    late = tuple(slot for slot in slots if state.cron is not None and now - slot.due_at > LATE_AFTER)
    events: list[Event] = []
    if late:
        minutes = LATE_AFTER // timedelta(minutes=1)
        events.append(_skipped(late, "late", f"nobody looked for more than {minutes} minutes", now))
    births = []
    fresh = slots[len(late) :]
    if fresh and (refusal := _refusal(known.version, known.trigger, known)) is not None:
        events.append(_skipped(fresh, *refusal, now))
    elif fresh:
        starts, overlapping = _starts(fresh, known.trigger, known.last_run)
        for slot in starts:
            birth = _birth(command.schedule_id, state, known, slot, now)
            events.append(
                e.ScheduleFired(at=now, slot=slot.local, due_at=slot.due_at, run_id=birth.stream_id),
            )
            births.append(birth)
        if overlapping:
            events.append(_skipped(overlapping, "overlap", "the run before is still open", now))
    return Decided(events=tuple(events), births=tuple(births)) if events else NOTHING


def retirement(version: DefinitionSynced | None) -> str:
    """Why a line that the version does not have is retired."""
    if version is None:
        return "the definition has no version"
    return f"version {version.hash[:12]} {'has no such line' if version.enabled else 'is disabled'}"


def _due(state: State, last_run: LastRun | None, now: datetime) -> tuple[Slot, ...]:
    """The slots that have come and were not handled, in order."""
    if state.cron is not None and state.handled_until is not None:
        line = read(state.cron, state.timezone)
        if line is None:
            raise Rejected(
                "schedule.unreadable",
                f"line `{state.line}` of {state.definition_id} cannot be read: its zone is not in this installation's "
                "time zone data, or its cron text is none; sync the definition with another line, or update tzdata",
            )
        return line.due(state.handled_until, now, limit=SLOTS_PER_LOOK_MAX)
    due_at = due_again(state, last_run)
    return () if due_at is None or due_at > now else (moment(due_at, state.timezone),)


def due_again(state: State, last_run: LastRun | None) -> datetime | None:
    """When an interval is due next; None while its run is open, and for what is no interval or not active."""
    if state.status != "active" or state.every is None or state.handled_until is None:
        return None
    if last_run is None:
        return state.handled_until + state.every
    if last_run.is_open:
        return None
    return max(state.handled_until, last_run.ended_at or state.handled_until) + state.every


def _starts(
    slots: tuple[Slot, ...], trigger: ScheduleTrigger, last_run: LastRun | None
) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
    """Which of these slots start a run now, and which do not since another run is open."""
    if trigger.overlap == "allow":
        return slots[:STARTS_PER_LOOK_MAX], ()
    if last_run is not None and last_run.is_open:
        return (), slots
    return slots[:1], slots[1:]


def _refusal(version: DefinitionSynced, trigger: ScheduleTrigger, known: Known) -> tuple[Reason, str] | None:
    """Why the line can start nothing now: the reason and its detail."""
    if known.owner is None:
        # Kept in the history as it is: whose email that is, the definition says.
        return "no_owner", f"no active user has the email that `run_as` of {version.definition_id} names"
    if not known.has_project:
        return "no_project", f"there is no project {trigger.project!r}, which the trigger names"
    missing = [key for key in version.required_context if resolve(key, known.context) in (None, MISSING, "")]
    if missing:
        named = ", ".join(missing)
        return "context", f"the definition requires {named}; a schedule has it only from the context's defaults"
    return None


def _skipped(slots: tuple[Slot, ...], reason: Reason, detail: str, now: datetime) -> e.ScheduleSkipped:
    return e.ScheduleSkipped(
        at=now, slot=slots[0].local, due_at=slots[-1].due_at, count=len(slots), reason=reason, detail=detail
    )


def _birth(schedule_id: UUID, state: State, known: Known, slot: Slot, now: datetime) -> Birth:
    version, trigger, owner = known.version, known.trigger, known.owner
    assert version is not None, "retired otherwise"
    assert trigger is not None, "retired otherwise"
    assert owner is not None, "refused otherwise"
    key = trigger_key(state.line, slot.local)
    created = RunCreated(
        at=now,
        definition_id=version.definition_id,
        hash=version.hash,
        bundle=version.bundle,
        context=known.context,
        initiated_by=owner,
        trigger=Trigger(kind="schedule", key=key, schedule_id=schedule_id, slot=slot.local),
        project_id=trigger.project,
    )
    return Birth("run", ids.triggered_run(known.tenant_group, version.definition_id, key), created)


def evolve(state: State, event: Event) -> State:
    """The state after one more fact."""
    match event:
        case e.ScheduleDeclared():
            return State(
                status="active",
                definition_id=event.definition_id,
                cron=event.cron,
                every_seconds=event.every_seconds,
                timezone=event.timezone,
                handled_until=event.at,
                last_run=state.last_run,
                paused_by=state.paused_by,
            )
        case e.ScheduleFired():
            return replace(state, handled_until=event.due_at, last_run=event.run_id)
        case e.ScheduleSkipped():
            return replace(state, handled_until=event.due_at)
        case e.SchedulePaused():
            return replace(state, status="paused", paused_by=event.by)
        case e.ScheduleResumed():
            return replace(state, status="active", handled_until=event.at, paused_by=None)
        case e.ScheduleRetired():
            return replace(state, status="retired")
        case _:
            return state


def _next_at(state: State) -> datetime | None:
    """The next slot of a cron line that is active and can be read."""
    if state.status != "active" or state.cron is None or state.handled_until is None:
        return None
    line = read(state.cron, state.timezone)
    return None if line is None else line.next(state.handled_until).due_at


def _wake_at(state: State, now: datetime) -> datetime | None:
    if state.status != "active" or state.handled_until is None:
        return None
    if state.every is None:
        return _next_at(state) or now + LOOK_AGAIN
    due_at = state.handled_until + state.every
    if due_at > now or state.last_run is None:
        return due_at
    # Whether its run has ended is nothing that this stream knows. Looking this often finds its end before it is due.
    return now + min(state.every, LOOK_AGAIN)


def _columns(state: State) -> Mapping[str, Any]:
    return {
        "definition_id": state.definition_id,
        "line": state.cron if state.cron is not None else f"every {state.every_seconds} s",
        "timezone": state.timezone,
        "next_at": _next_at(state),
        "last_run": state.last_run,
    }


CATEGORY: Final[Category[State]] = Category(
    name="schedule",
    initial=State(),
    evolve=evolve,
    status=lambda state: state.status,
    columns=_columns,
    wake_at=_wake_at,
    run_id=no_run,
    terminal=lifecycle.terminal(lifecycle.SCHEDULE),
)
