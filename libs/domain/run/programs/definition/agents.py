"""Agent steps and their branches: queue an attempt, take its output, ask its gate."""

from contracts import ids
from contracts.base import BlobRef
from contracts.events import run as e
from contracts.events.attempt import AttemptQueued
from contracts.subjects import work
from libs.domain import attempt
from libs.domain.core import Birth
from libs.domain.run.programs.definition.prompt import request_of
from libs.domain.run.walk import Walk, fail, loop
from libs.language.expressions import GateError, evaluate, parse
from libs.language.model import AgentStep, ParallelStep


def agent(walk: Walk, step: AgentStep, key: str) -> None:
    """Queue an attempt; take its result; ask its gate; loop where the gate refuses and says where to."""
    record = walk.state.step(key)
    if record.status == "pending":
        _queue(walk, step, key, number=1)
        return
    if record.status == "retrying":
        if record.not_before is not None and walk.now >= record.not_before:
            _queue(walk, step, key, number=record.attempt + 1)
        return
    if record.status == "failed" and walk.retry == key:
        _queue(walk, step, key, number=record.attempt + 1)
        return
    child = walk.child(record.open_id)
    if record.status != "queued" or not isinstance(child, attempt.State):
        return
    if child.status == "cancelled":  # the run had failed meanwhile, and somebody lets it go on
        _queue(walk, step, key, number=record.attempt + 1)
    elif child.status == "failed":
        fail(
            walk,
            key,
            child.failure_class or "default",
            child.message or "the attempt failed without a message",
            cost_microdollars=child.cost_microdollars,
        )
    elif child.status == "succeeded" and child.output is not None:
        _take(walk, step, key, child.output, child.cost_microdollars)


def _queue(walk: Walk, step: AgentStep, key: str, *, number: int) -> None:
    record = walk.state.step(key)
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


def _take(walk: Walk, step: AgentStep, key: str, output: BlobRef, cost_microdollars: int) -> None:
    """Accept an attempt's output, or not, as the step's gate says."""
    refusal = _refusal(walk, step, output)
    if refusal is not None and step.loop_to is None:
        fail(walk, key, "gate_failed", refusal, cost_microdollars=cost_microdollars)
        return
    if refusal is not None and walk.state.step(key).loops >= (step.loop_max or 0):
        fail(
            walk,
            key,
            "gate_failed",
            f"{refusal}, after loop_max of {step.loop_max} loops to {step.loop_to}",
            cost_microdollars=cost_microdollars,
        )
        return
    walk.emit(e.RunStepSucceeded(at=walk.now, step=key, output=output, cost_microdollars=cost_microdollars))
    if refusal is not None and step.loop_to is not None:
        feedback = e.Feedback(
            source_step=key,
            kind="gate",
            comment=refusal,
            previous=walk.state.step(step.loop_to).output,
            review=output,
        )
        loop(walk, from_step=key, to_step=step.loop_to, reason="gate", feedback=feedback)


def _refusal(walk: Walk, step: AgentStep, output: BlobRef) -> str | None:
    """Why the gate does not let the step pass; None when it does."""
    if step.gate is None:
        return None
    try:
        passed = evaluate(
            parse(step.gate),
            output=walk.artefact(output),
            steps=walk.outputs(),
            context=walk.state.context,
            state=walk.run_state,
        )
    except GateError as error:
        return f"gate {step.gate!r} cannot be judged: {error}"
    return None if passed else f"gate {step.gate!r} is not met"


def parallel(walk: Walk, step: ParallelStep, key: str) -> None:
    """Run the branches side by side; join their outputs when all of them have succeeded."""
    if walk.state.step(key).status == "pending":
        walk.emit(e.RunBranchesEntered(at=walk.now, step=key, round=walk.state.step(key).round))
    if walk.state.step(key).status != "queued":
        return
    branches = [f"{key}.{branch.key}" for branch in step.parallel]
    for branch, branch_key in zip(step.parallel, branches, strict=True):
        agent(walk, branch, branch_key)
        if not walk.moving:
            return
    records = {branch_key: walk.state.step(branch_key) for branch_key in branches}
    failed = next((branch_key for branch_key, record in records.items() if record.status == "failed"), None)
    if failed is not None and not any(record.status in {"queued", "retrying"} for record in records.values()):
        # Another branch was retried and has come to its end: this one still stands in the way.
        walk.emit(
            e.RunSuspended(
                at=walk.now,
                failure_class=records[failed].failure_class,
                reason=records[failed].message or f"{failed} has failed",
                step=failed,
            )
        )
        return
    if all(record.status == "succeeded" for record in records.values()):
        joined = {branch.key: walk.output(k) for branch, k in zip(step.parallel, branches, strict=True)}
        walk.emit(e.RunStepSucceeded(at=walk.now, step=key, output=walk.keep(joined)))
