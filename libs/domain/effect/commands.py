"""Commands of an effect, complete with all that their deciders need."""

from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from pydantic import Field

from contracts.base import Actor, BlobRef, Frozen, Principal
from minutebook.models.states import FailureClass, SettleVerdict


class BackLink(Frozen):
    """The call that links a written record back to its run: to be declared with the success of the write."""

    effect_id: UUID
    tool: str
    arguments: BlobRef


class Begin(Frozen):
    """Announce one call, before it is made; within `over_within` it is over everywhere.

    A write holds only while its run is active. `arm` is what the run last asked for; it may be ahead of a declared
    effect that no call was announced for. `restored` says that the run is older than the era of the record, and that
    nobody has said since whether the write is there: what was lost may hold its call.
    """

    claim: UUID
    arm: int = 0
    restored: bool = False
    over_within: timedelta


class Finish(Frozen):
    """The target answered: it is written. `blobs` hold the response, and a back-link's arguments, by digest."""

    claim: UUID
    reference: str | None
    response: BlobRef
    blobs: dict[str, bytes]
    effect_id: UUID | None = None
    back_link: BackLink | None = None


class Fail(Frozen):
    """Surely not written. `blobs` hold the response by digest."""

    claim: UUID
    failure_class: FailureClass
    message: str
    response: BlobRef | None = None
    blobs: dict[str, bytes] = Field(default_factory=dict)


class Doubt(Frozen):
    """The call was sent and its answer never came."""

    claim: UUID
    reason: str


class Expire(Frozen):
    """Nobody here is calling: in doubt once the call cannot be under way anywhere."""


class Settle(Frozen):
    """A person's verdict on an effect in doubt. `blobs` hold the response, and a back-link's arguments, by digest.

    `arm` names the call that the person looked for. Before `not_before` one may be under way that a restored record has
    lost.
    """

    principal: Principal
    command_id: UUID
    effect_id: UUID
    verdict: SettleVerdict
    arm: int
    reference: str | None
    comment: str | None
    not_before: datetime | None = None
    response: BlobRef | None = None
    back_link: BackLink | None = None
    blobs: dict[str, bytes] = Field(default_factory=dict)


class Look(Frozen):
    """What the target said when it was asked for the `look`th time whether the call `claim` was done.

    `command_id` is of the operator's command, where one asked for the look; `absent_is_not_landed` says that what the
    target does not show was not written. The rest is of what it found.
    """

    effect_id: UUID
    by: Actor
    command_id: UUID | None = None
    claim: UUID | None
    look: int
    result: Literal["found", "absent", "ambiguous", "unreachable"]
    message: str
    absent_is_not_landed: bool = False
    reference: str | None = None
    response: BlobRef | None = None
    back_link: BackLink | None = None
    blobs: dict[str, bytes] = Field(default_factory=dict)


class Rearm(Frozen):
    """Let a failed effect be tried again, once per `arm`. Past `valid_until` its approval is stale."""

    arm: int
    valid_until: datetime | None = None


class Cancel(Frozen):
    """The run was cancelled before anything was announced."""

    reason: str


class Rest(Frozen):
    """Nothing to say: only moves a wake that has passed."""


Command = Begin | Finish | Fail | Doubt | Expire | Settle | Look | Rearm | Cancel | Rest
