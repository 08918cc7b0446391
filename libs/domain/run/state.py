"""The state of a run: what its facts add up to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from contracts.base import Actor, BlobRef, JsonObject
from contracts.events import run as e
from contracts.events.decision import Approved
from minutebook.models.states import ArtifactState, DecisionOutcome, FailureClass, StepState

WaitsOn = Literal["decision", "manual", "event", "escalation"]
"""What a waiting step waits for: `escalation` is the question how a failed step goes on."""

UNDER_WAY: Final = frozenset({"delayed", "queued", "waiting", "writing", "retrying"})
"""States of steps from which they go on, by themselves or by somebody else."""


@dataclass(frozen=True)
class StepRecord:
    """What happened to one step, branch or item so far.

    `round` counts from 1 and grows when a loop or a reviewer sends the run back over the step; `attempt` counts
    within the round how often it was queued or opened, `attempts` over all rounds. `open_id` is the attempt, decision,
    wait or effect that stands for the step now or stood for it last; `effect_id` is its effect, also while a person is
    asked about it. `since` is when the step began in this round, or when a person had it tried once more; later
    attempts do not move it. `not_before` ends a backoff or a delay, `until` is when a wait times out. `output` is the
    artefact that counts: as approved where it was decided on; `revisers` are all who revised it, `revised_at` is the
    decision that did where the history does not say who. `by` is who decided or completed the step, `deciders` all who
    did where it was inherited, `approved` what was approved there, `expired` an approval of it that has gone
    stale since. `items` and `count` are of a step with `for_each`; `role` and what follows it of a manual step.
    """

    status: StepState = "pending"
    round: int = 1
    attempt: int = 0
    attempts: int = 0
    arm: int = 0
    loops: int = 0
    escalations: int = 0
    open_id: UUID | None = None
    effect_id: UUID | None = None
    since: datetime | None = None
    not_before: datetime | None = None
    until: datetime | None = None
    waits_on: WaitsOn | None = None
    proposed: BlobRef | None = None
    output: BlobRef | None = None
    artifact_state: ArtifactState | None = None
    shown: BlobRef | None = None
    shown_step: str | None = None
    outcome: DecisionOutcome | None = None
    failure_class: FailureClass | None = None
    message: str | None = None
    feedback: e.Feedback | None = None
    cost_microdollars: int = 0
    by: Actor | None = None
    succeeded_at: datetime | None = None
    approved: BlobRef | None = None
    expired: Approved | None = None
    revisers: tuple[UUID, ...] = ()
    revised_at: str | None = None
    deciders: tuple[UUID, ...] = ()
    valid_until: datetime | None = None
    items: BlobRef | None = None
    count: int = 0
    role: str | None = None
    binding: e.RoleBinding | None = None
    completed_by: Actor | None = None
    completed_at: datetime | None = None
    command_id: UUID | None = None

    @property
    def holds_others(self) -> bool:
        """Whether it is under way by its branches or items, which have records of their own."""
        return self.status == "queued" and self.open_id is None


NEW_STEP: Final = StepRecord()


@dataclass(frozen=True)
class State:
    """A run. `steps` holds the steps that were reached, in the order in which they were.

    `admission` is the concurrency key that the run asked for and has not given back; `held` says that others have it.
    `consumed` are the events that the run has taken, or was started by. `inherited_effects` are the writes of the run
    that this one was forked from, by effect key. `by` and `by_at` tell who cancelled, suspended or resumed it last,
    `stopped_at` at which step it was suspended or failed last.
    """

    status: str = "absent"
    definition_id: str = ""
    hash: str = ""
    bundle: BlobRef | None = None
    context: JsonObject = field(default_factory=dict)
    initiated_by: e.UserRef | None = None
    trigger: e.Trigger | None = None
    project_id: str | None = None
    variant: str | None = None
    parent: UUID | None = None
    created_at: datetime | None = None
    finished_at: datetime | None = None
    admission: e.RunAdmissionRequested | None = None
    held: bool = False
    started: bool = False
    superseded_by: UUID | None = None
    stage: str | None = None
    steps: Mapping[str, StepRecord] = field(default_factory=dict)
    consumed: tuple[UUID, ...] = ()
    inherited_effects: Mapping[str, UUID] = field(default_factory=dict)
    outcome: str | None = None
    reason: str | None = None
    failure_class: FailureClass | None = None
    by: Actor | None = None
    by_at: datetime | None = None
    stopped_at: str | None = None
    worked: timedelta = timedelta(0)
    working_since: datetime | None = None

    def step(self, key: str) -> StepRecord:
        """The record of a step, also of one that was not reached yet."""
        return self.steps.get(key, NEW_STEP)

    def below(self, key: str) -> Mapping[str, StepRecord]:
        """The branches or items of a step, by their own keys."""
        prefix = f"{key}."
        return {name: record for name, record in self.steps.items() if name.startswith(prefix)}

    @property
    def cost_microdollars(self) -> int:
        return sum(record.cost_microdollars for record in self.steps.values())

    def working_time(self, now: datetime) -> timedelta:
        """How long the run has worked; time parked on a person, event or timer does not count."""
        return self.worked + (now - self.working_since if self.working_since else timedelta(0))
