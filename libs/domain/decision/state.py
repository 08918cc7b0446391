"""The state of a decision: what its facts add up to."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from contracts.base import Actor, BlobRef
from contracts.events.decision import Approved, Barred, Quorum, Seat
from contracts.events.run import RoleBinding, UserRef
from minutebook.models.states import DecisionOutcome

UNBOUND: Final = RoleBinding()

REVISER: Final = "reviser"
"""The rule of four eyes that bars whoever revised what is decided on."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """A vote that counts: no revision has wiped it. With an `on_behalf_of` it is that person's."""

    command_id: UUID
    outcome: DecisionOutcome
    by: Actor
    on_behalf_of: UserRef | None
    comment: str | None
    voted_at: datetime

    @property
    def person(self) -> UUID | None:
        """Whose vote it is."""
        return self.on_behalf_of.id if self.on_behalf_of is not None else self.by.id


@dataclass(frozen=True, slots=True)
class State:
    """Where a decision stands. What was opened is set in every status but `absent`.

    `artifact` is what it was opened with and `revised` what that was made of since, by `revisers`. `seats` are the
    voters of a quorum once they are named, by role; `ballots` the votes on what is shown now. `assigned` may answer
    though they hold no role, `relieved` may not though they do. `heard` are the commands that wrote a fact.
    """

    status: str = "absent"
    run_id: UUID | None = None
    definition_id: str = ""
    step: str = ""
    title: str = ""
    round: int = 0
    role: str = ""
    binding: RoleBinding = UNBOUND
    outcomes: tuple[DecisionOutcome, ...] = ()
    artifact_step: str | None = None
    artifact: BlobRef | None = None
    initiated_by: UserRef | None = None
    project_id: str | None = None
    opened_at: datetime | None = None
    outcome: DecisionOutcome | None = None
    by: Actor | None = None
    on_behalf_of: UserRef | None = None
    comment: str | None = None
    revised: BlobRef | None = None
    answer: BlobRef | None = None
    answered_at: datetime | None = None
    withdrawn_because: str | None = None
    kind: Literal["decision", "escalation"] = "decision"
    due_at: datetime | None = None
    window: timedelta = timedelta(0)
    until: datetime | None = None
    escalate_to: str | None = None
    escalate_binding: RoleBinding = UNBOUND
    reminded_at: datetime | None = None
    escalated_to: str | None = None
    quorum: Quorum | None = None
    barred: tuple[Barred, ...] = ()
    question: str | None = None
    form: BlobRef | None = None
    previous: Approved | None = None
    seats: tuple[Seat, ...] | None = None
    ballots: tuple[Ballot, ...] = ()
    revisers: tuple[UUID, ...] = ()
    assigned: tuple[UUID, ...] = ()
    relieved: tuple[UUID, ...] = ()
    heard: tuple[UUID, ...] = ()

    @property
    def shown(self) -> BlobRef | None:
        """What is decided on now: the artefact that it was opened with, or its last revision."""
        return self.revised or self.artifact

    @property
    def bars_reviser(self) -> bool:
        return any(barred.rule == REVISER for barred in self.barred)
