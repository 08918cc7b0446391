"""Commands of a run, complete with all that their deciders need."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from contracts.base import BlobRef, JsonObject, JsonValue, Principal
from contracts.events.run import Trigger
from libs.domain import attempt, decision, effect
from libs.language.model import Bundle

Child = attempt.State | decision.State | effect.State


@dataclass(frozen=True, slots=True)
class Evidence:
    """What planning reads from elsewhere: the pinned version, the run's children and the content of artefacts.

    `children` are by attempt, decision and effect id, `artefacts` by digest.
    """

    bundle: Bundle | None = None
    children: Mapping[UUID, Child] = field(default_factory=dict)
    artefacts: Mapping[str, JsonValue] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class Advance:
    """Something may have happened: plan what follows."""

    run_id: UUID
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
    """Try a failed step of a suspended or failed run once more."""

    run_id: UUID
    step: str
    principal: Principal
    evidence: Evidence


RunCommand = Create | Advance | Cancel | Suspend | Resume | RetryStep
