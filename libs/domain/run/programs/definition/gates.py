"""Gates: a step of its own that asks an expression, and how the gate of any step refuses."""

from contracts.base import BlobRef
from contracts.events import run as e
from libs.domain.run.programs.definition.failures import fail
from libs.domain.run.programs.definition.loops import loop
from libs.domain.run.walk import Walk
from libs.language.expressions import GateError, evaluate, parse
from libs.language.model import AgentStep, GateStep


def gate(walk: Walk, step: GateStep, key: str) -> None:
    """Ask the expression at once. It reads earlier steps, the context and the state; it has no output of its own."""
    if walk.begins(key):
        pass_or_refuse(walk, step, key, output=None)


def pass_or_refuse(
    walk: Walk, step: AgentStep | GateStep, key: str, *, output: BlobRef | None, cost_microdollars: int = 0
) -> None:
    """Let the step succeed, or do what follows when its gate does not: loop back, or fail as `gate_failed`."""
    refusal = _refusal(walk, step.gate, output)
    if refusal is not None and step.loop_to is not None:
        if walk.state.step(key).loops < (step.loop_max or 0):
            walk.emit(e.RunStepSucceeded(at=walk.now, step=key, output=output, cost_microdollars=cost_microdollars))
            feedback = e.Feedback(
                source_step=key,
                kind="gate",
                comment=refusal,
                previous=walk.state.step(step.loop_to).output,
                review=output,
            )
            loop(walk, from_step=key, to_step=step.loop_to, reason="gate", feedback=feedback)
            return
        refusal = f"{refusal}, after loop_max of {step.loop_max} loops to {step.loop_to}"
    if refusal is not None:
        fail(walk, key, "gate_failed", refusal, cost_microdollars=cost_microdollars, refused=output)
        return
    walk.emit(e.RunStepSucceeded(at=walk.now, step=key, output=output, cost_microdollars=cost_microdollars))


def _refusal(walk: Walk, expression: str | None, output: BlobRef | None) -> str | None:
    """Why the gate does not let the step pass; None when it does."""
    if expression is None:
        return None
    try:
        passed = evaluate(
            parse(expression),
            output={} if output is None else walk.artefact(output),
            steps=walk.outputs(),
            context=walk.context,
            state=walk.run_state,
        )
    except GateError as error:
        return f"gate {expression!r} cannot be judged: {error}"
    return None if passed else f"gate {expression!r} is not met"
