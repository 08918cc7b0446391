"""Commands of a run, complete with all that their deciders need."""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from contracts.base import BlobRef, Event, JsonObject, JsonValue, Principal
from contracts.events.run import Trigger
from libs.domain import admission, attempt, decision, effect, wait
from libs.domain.run.state import State
from libs.language.model import Bundle

STREAM_EVENTS_MAX: Final = 50_000
"""Facts that a run may have. One that goes on beyond is a loop of its definition: it is suspended, and people look."""

Child = attempt.State | decision.State | effect.State | wait.State


@dataclass(frozen=True, slots=True)
class Evidence:
    """What planning reads from elsewhere: the pinned version, the run's children and the content of artefacts.

    `children` are by attempt, decision, wait and effect id, `artefacts` by digest. `key` is the state of the
    concurrency key that a new run will ask for, `verdict` the last fact about the run under the key that it asked for.
    `told` is what prompts say of outputs, by step and digest: the next plan's say the same, so it may be kept.
    `length` is how many facts the run has, `length_max` how many it may have.
    """

    tenant_group: UUID | None = None
    bundle: Bundle | None = None
    children: Mapping[UUID, Child] = field(default_factory=dict)
    artefacts: Mapping[str, JsonValue] = field(default_factory=dict)
    key: admission.State | None = None
    verdict: Event | None = None
    told: MutableMapping[str, str] = field(default_factory=dict)
    length: int = 0
    length_max: int = STREAM_EVENTS_MAX

    @property
    def too_long(self) -> str | None:
        """Why the run cannot be planned any further, in words that name the limit; None while it can."""
        if self.length < self.length_max:
            return None
        return f"STREAM_EVENTS_MAX: the run has {self.length} facts, and {self.length_max} is as many as it may have"


NO_EVIDENCE: Final = Evidence()
"""Stands in a command until its owner has read what its run needs."""


@dataclass(frozen=True, slots=True)
class Create:
    """Start a run by hand."""

    run_id: UUID
    definition_id: str
    principal: Principal
    evidence: Evidence
    bundle: BlobRef
    context: JsonObject
    trigger: Trigger
    project_id: str | None
    variant: str | None = None


@dataclass(frozen=True, slots=True)
class Restart:
    """Start a run with what another one was started with. `parent` is that run as it is now."""

    run_id: UUID
    parent_id: UUID
    parent: State
    principal: Principal
    evidence: Evidence
    bundle: BlobRef


@dataclass(frozen=True, slots=True)
class Fork:
    """Start a run from a point of another one's history.

    `parent` is that run as it was at the point, `at_version`; `effects` are its writes that were made or may have
    been, up to the present, by effect key. `context` is laid over the old one, `artifacts` over the steps' own.
    """

    run_id: UUID
    parent_id: UUID
    parent: State
    at_version: int
    effects: Mapping[str, UUID]
    principal: Principal
    evidence: Evidence
    bundle: BlobRef
    context: JsonObject
    artifacts: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Advance:
    """Something may have happened: plan what follows."""

    run_id: UUID
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Complete:
    """Complete a manual step with an artefact."""

    run_id: UUID
    step: str
    command_id: UUID
    artifact: JsonValue
    comment: str | None
    principal: Principal
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Cancel:
    principal: Principal
    reason: str


@dataclass(frozen=True, slots=True)
class Suspend:
    principal: Principal
    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Plan on from where the run stands. Repeats nothing."""

    run_id: UUID
    principal: Principal
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class RetryStep:
    """Try a failed step of a suspended or failed run once more; of a step with branches or items what failed of it."""

    run_id: UUID
    step: str
    principal: Principal
    evidence: Evidence


RunCommand = Create | Restart | Fork | Advance | Complete | Cancel | Suspend | Resume | RetryStep
