"""Agent steps: queue an attempt, take its output, ask its gate."""

from contracts import ids
from contracts.events import run as e
from contracts.events.attempt import AttemptQueued
from contracts.subjects import work
from libs.domain import attempt
from libs.domain.core import Birth
from libs.domain.run.programs.definition.failures import fail
from libs.domain.run.programs.definition.gates import pass_or_refuse
from libs.domain.run.programs.definition.prompt import request_of
from libs.domain.run.walk import Walk
from libs.language.model import AgentStep


def agent(walk: Walk, step: AgentStep, key: str) -> None:
    """Queue an attempt; take its result; ask its gate."""
    record = walk.state.step(key)
    due = record.status == "retrying" and record.not_before is not None and walk.now >= record.not_before
    if due or walk.begins(key):
        _queue(walk, step, key)
        return
    child = walk.child(record.open_id)
    if record.status != "queued" or not isinstance(child, attempt.State):
        return
    if child.status == "cancelled":  # the run had failed meanwhile, and somebody lets it go on
        _queue(walk, step, key)
    elif child.status == "failed":
        fail(
            walk,
            key,
            child.failure_class or "default",
            child.message or "the attempt failed without a message",
            cost_microdollars=child.cost_microdollars,
        )
    elif child.status == "succeeded" and child.output is not None:
        pass_or_refuse(walk, step, key, output=child.output, cost_microdollars=child.cost_microdollars)


def _queue(walk: Walk, step: AgentStep, key: str) -> None:
    record = walk.state.step(key)
    number = record.attempt + 1
    attempt_id = ids.attempt(walk.run_id, key, record.round, number)
    request = walk.keep(request_of(walk, step, key, number=number).model_dump(mode="json"))
    walk.emit(e.RunStepQueued(at=walk.now, step=key, round=record.round, attempt=number, attempt_id=attempt_id))
    walk.births.append(
        Birth(
            category="attempt",
            stream_id=attempt_id,
            event=AttemptQueued(
                at=walk.now,
                run_id=walk.run_id,
                step=key,
                round=record.round,
                number=number,
                executor=step.agent,
                queue=step.queue,
                request=request,
            ),
            work_subject=work(step.agent, step.queue),
        )
    )
