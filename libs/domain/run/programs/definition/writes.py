"""Write steps: declare an effect with the approved artefact, take what became of it."""

from uuid import UUID

from contracts import ids
from contracts.base import BlobRef, JsonObject, JsonValue
from contracts.errors import Rejected
from contracts.events import run as e
from contracts.events.effect import EffectDeclared
from libs.canonical import blob
from libs.domain.core import Birth
from libs.domain.effect import State
from libs.domain.run.walk import Walk, fail
from libs.language.interpolation import interpolate
from libs.language.model import WriteStep
from libs.language.paths import MISSING, resolve


def write(walk: Walk, step: WriteStep, key: str) -> None:
    """Declare an effect with the approved artefact; take what became of it."""
    record = walk.state.step(key)
    if record.status == "pending":
        _declare(walk, step, key)
        return
    if record.status == "retrying":
        if record.not_before is not None and walk.now >= record.not_before and record.open_id is not None:
            _arm(walk, step, key, record.open_id)
        return
    if record.status == "failed" and walk.retry == key:
        if record.open_id is None:
            _declare(walk, step, key)
        else:
            _arm(walk, step, key, record.open_id)
        return
    child = walk.child(record.open_id)
    if record.status != "writing" or record.open_id is None or not isinstance(child, State):
        return
    if child.step != key and child.arguments != _arguments_ref(walk, step):
        fail(walk, key, "default", f"effect {child.key} was declared by {child.step} with other arguments")
    elif child.status == "succeeded":
        if step.args_from is not None:
            walk.emit(e.RunArtifactExecuted(at=walk.now, step=step.args_from.split(".")[0], effect_id=record.open_id))
        walk.emit(e.RunStepSucceeded(at=walk.now, step=key, output=child.response))
    elif child.status == "failed" and child.arm >= record.arm:
        fail(walk, key, child.failure_class or "default", child.message or "the write failed without a message")
    elif child.status == "in_doubt":
        reason = f"in_doubt: {step.system}.{step.tool} may have been done: {child.message}"
        walk.emit(e.RunSuspended(at=walk.now, reason=reason, step=key))


def _declare(walk: Walk, step: WriteStep, key: str) -> None:
    owner = walk.state.initiated_by
    assert owner is not None
    try:
        if walk.state.step(step.requires_decision).outcome != "approve":
            raise Rejected("write.not_approved", f"{step.requires_decision} was not approved")
        arguments, effect_key = _arguments(walk, step)
    except Rejected as error:
        fail(walk, key, "missing_data", error.message)
        return
    effect_id = ids.effect(walk.run_id, effect_key)
    kept = walk.keep(arguments)
    walk.emit(
        e.RunStepWriting(
            at=walk.now,
            step=key,
            round=walk.state.step(key).round,
            effect_id=effect_id,
            effect_key=effect_key,
            arm=0,
        )
    )
    walk.births.append(
        Birth(
            category="effect",
            stream_id=effect_id,
            event=EffectDeclared(
                at=walk.now,
                run_id=walk.run_id,
                step=key,
                key=effect_key,
                system=step.system,
                tool=step.tool,
                arguments=kept,
                owner=owner,
            ),
        )
    )


def _arm(walk: Walk, step: WriteStep, key: str, effect_id: UUID) -> None:
    """Let the effects service try a write again that surely was not done."""
    record = walk.state.step(key)
    _, effect_key = _arguments(walk, step)
    walk.emit(
        e.RunStepWriting(
            at=walk.now,
            step=key,
            round=record.round,
            effect_id=effect_id,
            effect_key=effect_key,
            arm=record.arm + 1,
        )
    )


def _arguments(walk: Walk, step: WriteStep) -> tuple[JsonObject, str]:
    """The tool's arguments and the effect's key: the approved artefact, then what the definition sets over it.

    Raises:
        contracts.errors.Rejected: a value that is needed is not set, or is not of the shape that is needed.
    """
    base = _artefact_arguments(walk, step)
    over = _filled(walk, step.args, base)
    assert isinstance(over, dict), "an object interpolates to an object"
    arguments: JsonObject = {**base, **over}
    effect_key = _filled(walk, step.effect_key, arguments)
    if not isinstance(effect_key, str | int) or isinstance(effect_key, bool):
        raise Rejected("write.key", f"effect_key of {step.key} is {type(effect_key).__name__}; it must be text")
    return arguments, str(effect_key)


def _filled(walk: Walk, value: JsonValue, args: JsonObject) -> JsonValue:
    return interpolate(value, args=args, context=walk.state.context, state=walk.run_state, run_id=walk.run_id)


def _artefact_arguments(walk: Walk, step: WriteStep) -> JsonObject:
    if step.args_from is None:
        return {}
    source, _, *path = step.args_from.split(".")
    output = walk.output(source)
    found = resolve(".".join(path), output) if path else output
    if found is MISSING or not isinstance(found, dict):
        raise Rejected("write.arguments", f"args_from {step.args_from} names no object in the output of {source}")
    return found


def _arguments_ref(walk: Walk, step: WriteStep) -> BlobRef | None:
    try:
        return blob(_arguments(walk, step)[0])[0]
    except Rejected:
        return None
