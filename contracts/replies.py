"""Replies to commands: a result, or the problem that says why not."""

from typing import Generic, Literal, TypeVar
from uuid import UUID

from contracts.base import Frozen, Sha256
from contracts.commands import ServerListing
from contracts.errors import Refusal
from contracts.events.inbound import ResumedRun, SkippedTrigger, StartedRun
from minutebook.models.states import (
    DecisionOutcome,
    DecisionState,
    EffectState,
    NoticeState,
    RunState,
    ScheduleState,
)

R = TypeVar("R", bound=Frozen)


class RunChanged(Frozen):
    """Reply of start, cancel, suspend and resume."""

    run_id: UUID
    version: int
    state: RunState


class SyncedThing(Frozen):
    kind: Literal["workflow", "source", "server", "channel"]
    id: str
    hash: Sha256
    changed: bool


class DefinitionsSynced(Frozen):
    """`warnings` say what could not be checked, such as the tools of a server that did not answer."""

    synced: tuple[SyncedThing, ...]
    warnings: tuple[str, ...] = ()


class ServersInspected(Frozen):
    """By server id."""

    listings: dict[str, ServerListing]


class DefinitionChanged(Frozen):
    """Reply of promote_definition: the version that every new run takes."""

    definition_id: str
    hash: Sha256


class EventRouted(Frozen):
    """Reply of replay_event and deliver_event: what followed this time."""

    inbound_id: UUID
    started: tuple[StartedRun, ...] = ()
    skipped: tuple[SkippedTrigger, ...] = ()
    resumed: tuple[ResumedRun, ...] = ()
    unmatched: str | None = None


class BodyNoted(Frozen):
    inbound_id: UUID


class ScheduleChanged(Frozen):
    schedule_id: UUID
    state: ScheduleState


class DecisionAccepted(Frozen):
    """The answer was taken. A vote that did not end it leaves the decision open, with so many of the approvals."""

    decision_id: UUID
    run_id: UUID
    outcome: DecisionOutcome
    revised: bool
    state: DecisionState = "answered"
    approvals: int = 1
    needed: int = 1


class DecisionChanged(Frozen):
    """Reply of reassign."""

    decision_id: UUID
    state: DecisionState


class EffectChanged(Frozen):
    """Reply of settle and probe. `message` is what the target said, where it was asked."""

    effect_id: UUID
    run_id: UUID
    state: EffectState
    reference: str | None
    message: str | None = None


class NoticeChanged(Frozen):
    notice_id: UUID
    state: NoticeState


class SourceNoted(Frozen):
    source_id: str


class Reply(Frozen, Generic[R]):
    """Exactly one of the two is set."""

    result: R | None = None
    problem: Refusal | None = None


class RunsStarted(Frozen):
    """Reply of start_runs: one per run that was to start, in order."""

    runs: tuple[Reply[RunChanged], ...]
