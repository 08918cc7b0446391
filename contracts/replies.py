"""Replies to commands: a result, or the problem that says why not."""

from typing import Generic, Literal, TypeVar
from uuid import UUID

from contracts.base import Frozen, Sha256
from minutebook.models.problem import Problem
from minutebook.models.states import DecisionOutcome, RunState

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
