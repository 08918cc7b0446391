"""Replies to commands: a result, or the problem that says why not."""

from typing import Generic, Literal, TypeVar
from uuid import UUID

from contracts.base import Frozen, Sha256
from contracts.events.inbound import ResumedRun, SkippedTrigger, StartedRun
from minutebook.models.problem import Problem
from minutebook.models.states import DecisionOutcome, RunState, ScheduleState

R = TypeVar("R", bound=Frozen)


class RunChanged(Frozen):
    """Reply of start, cancel, suspend and resume."""

    run_id: UUID
    version: int
    state: RunState


class SyncedThing(Frozen):
    kind: Literal["workflow", "source", "server"]
    id: str
    hash: Sha256
    changed: bool


class DefinitionsSynced(Frozen):
    synced: tuple[SyncedThing, ...]


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
    decision_id: UUID
    run_id: UUID
    outcome: DecisionOutcome
    revised: bool


class Reply(Frozen, Generic[R]):
    """Exactly one of the two is set."""

    result: R | None = None
    problem: Problem | None = None


class RunsStarted(Frozen):
    """Reply of start_runs: one per run that was to start, in order."""

    runs: tuple[Reply[RunChanged], ...]
