"""What people do to runs: complete a step, fork, and many runs at once."""

from typing import Literal
from uuid import UUID

from pydantic import AwareDatetime, ConfigDict, Field, JsonValue

from minutebook.models.base import JsonObject, Sent, Shown
from minutebook.models.problem import Problem
from minutebook.models.runs import RunChanged, RunSummary
from minutebook.models.states import RunState

BULK_RUNS_MAX = 500
"""Runs that one request retries or cancels."""

HASH_PATTERN = r"^[0-9a-f]{8,64}$"
"""A version's hash, or as many of its first characters as tell it apart."""


class CompleteStepRequest(Sent):
    """What a manual step hands off."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"artifact": {"signed": True}, "comment": "Signed by both sides."}]}
    )

    artifact: JsonValue = Field(description="must fit the step's output schema, where it has one")
    comment: str | None = Field(default=None, max_length=20_000)


class ForkRequest(Sent):
    """The point of another run's history that a new run goes on from, and what is different there.

    Without `at_version` and `from_step` the point is the present.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"from_step": "design", "context": {"summary": "Print an invoice, twice"}}]}
    )

    at_version: int | None = Field(default=None, ge=1, description="the run as it was after this fact of its history")
    from_step: str | None = Field(
        default=None, max_length=200, description="the run as it was just before this step began last"
    )
    context: JsonObject = Field(default_factory=dict, description="laid over the old run's context")
    artifacts: dict[str, JsonValue] = Field(
        default_factory=dict, description="by step: replace what finished steps had handed off"
    )
    hash: str | None = Field(default=None, pattern=HASH_PATTERN, description="another version of the definition")


class RunsFilter(Sent):
    """Which runs: all conditions hold. What is left out does not matter."""

    definition: str | None = Field(default=None, max_length=200)
    state: tuple[RunState, ...] = Field(default=(), description="one of these; those that the act is possible in")
    project: str | None = Field(default=None, max_length=200)
    initiated_by: UUID | None = None
    parent: UUID | None = None
    created_from: AwareDatetime | None = None
    created_before: AwareDatetime | None = None
    context: dict[str, str] = Field(default_factory=dict, max_length=20, description="plain values of the context")


class BulkRequest(Sent):
    """Retry the failed step of many runs, or cancel them.

    Without `confirm` nothing is done: the answer counts the runs and shows some of them. With `confirm`, which must
    be that count, each run is asked for by itself.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"act": "cancel", "filter": {"definition": "release-note", "context": {"version": "1.4"}}}]
        }
    )

    act: Literal["retry", "cancel"]
    filter: RunsFilter = Field(default_factory=RunsFilter)
    confirm: int | None = Field(default=None, ge=0, le=BULK_RUNS_MAX)
    reason: str | None = Field(default=None, min_length=1, max_length=2_000, description="of a cancel, for the record")


class BulkItem(Shown):
    """What became of one run: exactly one of `run` and `problem` is set."""

    run_id: UUID
    step: str | None = Field(default=None, description="of a retry: the failed step")
    run: RunChanged | None = None
    problem: Problem | None = None


class BulkResult(Shown):
    """How many runs the filter takes and, once confirmed, what became of each, newest first."""

    count: int
    sample: tuple[RunSummary, ...] = Field(description="the newest of them; empty once confirmed")
    items: tuple[BulkItem, ...] = Field(default=(), description="empty until it is confirmed")
