"""What an executor is given: written whole when a step is queued, kept as a blob, never changed."""

from uuid import UUID

from contracts.base import Frozen, JsonObject, Microdollars


class AttemptRequest(Frozen):
    """One execution of one agent step.

    `prompt` is complete: the step's prompt file, the run's context, earlier outputs and the reviewers' feedback.
    `output_schema` is a JSON Schema with an object at its root, without `$schema` and `$id`; None takes any object.
    """

    run_id: UUID
    definition_id: str
    step: str
    round: int
    attempt: int
    prompt: str
    context: JsonObject
    output_schema: JsonObject | None
    model: str | None
    budget_microdollars: Microdollars | None
    deadline_seconds: float
