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
from libs.domain.run.programs.definition.approvals import ask_anew, is_asked_anew, is_stale, valid_until
from libs.domain.run.programs.definition.failures import fail
from libs.domain.run.walk import Walk
from libs.language.interpolation import interpolate
from libs.language.model import WriteStep
from libs.language.paths import MISSING, resolve


def write(walk: Walk, step: WriteStep, key: str) -> None:
    """Declare an effect with the approved artefact; take what became of it."""
    record = walk.state.step(key)
    due = record.status == "retrying" and record.not_before is not None and walk.now >= record.not_before
    if is_asked_anew(walk, step):
        return
    if due or walk.begins(key):
        _declare(walk, step, key)
        return
    child = walk.child(record.open_id)
    if record.status != "writing" or record.open_id is None or not isinstance(child, State):
        return
    inherited = child.run_id != walk.run_id
    if not inherited and child.step != key and child.arguments != _arguments_ref(walk, step, key):
        fail(walk, key, "default", f"effect {child.key} was declared by {child.step} with other arguments")
    elif child.status == "succeeded":
        if step.args_from is not None and not _reads_item(step):
            walk.emit(e.RunArtifactExecuted(at=walk.now, step=step.args_from.split(".")[0], effect_id=record.open_id))
        walk.emit(e.RunStepSucceeded(at=walk.now, step=key, output=child.response))
    elif inherited and child.status in {"failed", "cancelled"}:
        # Surely not done by the run that this one was forked from: it is this run's to do.
        _declare(walk, step, key, own=True)
    elif child.status == "failed" and child.expired and is_stale(walk, step):
        ask_anew(walk, step, key)
    elif child.status == "failed" and child.arm >= record.arm:
        fail(walk, key, child.failure_class or "default", child.message or "the write failed without a message")
    elif child.status == "in_doubt":
        reason = f"in_doubt: {step.system}.{step.tool} may have been done: {child.message}"
        walk.emit(e.RunSuspended(at=walk.now, reason=reason, step=key, effect_id=record.open_id))


def _declare(walk: Walk, step: WriteStep, key: str, *, own: bool = False) -> None:
    """Declare the effect, or let one that surely was not done be tried again.

    A write that the parent of a fork made, or may have made, is taken over and never sent again, unless it turned out
    not to have been made: then it is this run's `own`.
    """
    record = walk.state.step(key)
    if is_stale(walk, step):
        ask_anew(walk, step, key)
        return
    before = walk.child(record.effect_id)
    # A verdict may have armed the effect again, beyond what this run asked for.
    arm = max(record.arm, before.arm) if isinstance(before, State) else record.arm
    try:
        if walk.state.step(step.requires_decision).outcome != "approve":
            raise Rejected("write.not_approved", f"{step.requires_decision} was not approved")
        arguments, effect_key = _arguments(walk, step, key)
    except Rejected as error:
        fail(walk, key, "missing_data", error.message)
        return
    inherited = None if own or record.effect_id is not None else _inherited(walk, step, key, effect_key)
    effect_id = inherited or ids.effect(walk.run_id, effect_key)
    armed_again = record.effect_id == effect_id
    walk.emit(
        e.RunStepWriting(
            at=walk.now,
            step=key,
            round=record.round,
            effect_id=effect_id,
            effect_key=effect_key,
            arm=arm + 1 if armed_again else 0,
            valid_until=valid_until(walk, step),
        )
    )
    if inherited is None and not armed_again:
        walk.births.append(_birth(walk, step, key, effect_id, effect_key, arguments))


def _inherited(walk: Walk, step: WriteStep, key: str, effect_key: str) -> UUID | None:
    """The effect of the run that this one was forked from, under this key or as that run would have named it."""
    effects, parent = walk.state.inherited_effects, walk.state.parent
    if not effects or parent is None:
        return None
    return effects.get(effect_key) or effects.get(_arguments(walk, step, key, run_id=parent)[1])


def _birth(walk: Walk, step: WriteStep, key: str, effect_id: UUID, effect_key: str, arguments: JsonObject) -> Birth:
    owner = walk.state.initiated_by
    assert owner is not None
    return Birth(
        category="effect",
        stream_id=effect_id,
        event=EffectDeclared(
            at=walk.now,
            run_id=walk.run_id,
            step=key,
            key=effect_key,
            system=step.system,
            tool=step.tool,
            arguments=walk.keep(arguments),
            owner=owner,
            valid_until=valid_until(walk, step),
        ),
    )


def _arguments(walk: Walk, step: WriteStep, key: str, *, run_id: UUID | None = None) -> tuple[JsonObject, str]:
    """The tool's arguments and the effect's key: the approved artefact, then what the definition sets over it.

    `run_id` fills them in for another run than this one.

    Raises:
        contracts.errors.Rejected: a value that is needed is not set, or is not of the shape that is needed.
    """
    base = _artefact_arguments(walk, step, key)
    over = _filled(walk, step.args, base, key, run_id or walk.run_id)
    assert isinstance(over, dict), "an object interpolates to an object"
    arguments: JsonObject = {**base, **over}
    effect_key = _filled(walk, step.effect_key, arguments, key, run_id or walk.run_id)
    if not isinstance(effect_key, str | int) or isinstance(effect_key, bool):
        raise Rejected("write.key", f"effect_key of {step.key} is {type(effect_key).__name__}; it must be text")
    return arguments, str(effect_key)


def _filled(walk: Walk, value: JsonValue, args: JsonObject, key: str, run_id: UUID) -> JsonValue:
    item = walk.item_of(key)
    return interpolate(
        value,
        args=args,
        context=walk.context,
        state=walk.run_state_of(run_id),
        run_id=run_id,
        item=None if item is None else item[1],
        index=None if item is None else item[0],
    )


def _reads_item(step: WriteStep) -> bool:
    return step.for_each is not None and step.args_from is not None and step.args_from.split(".")[0] == "item"


def _artefact_arguments(walk: Walk, step: WriteStep, key: str) -> JsonObject:
    if step.args_from is None:
        return {}
    item = walk.item_of(key)
    source, *path = step.args_from.split(".")
    if item is not None and _reads_item(step):
        output, what = item[1], f"item {item[0]}"
    else:
        output, what, path = walk.output(source), f"the output of {source}", path[1:]
    found = resolve(".".join(path), output) if path else output
    if found is MISSING or not isinstance(found, dict):
        raise Rejected("write.arguments", f"args_from {step.args_from} names no object in {what}")
    return found


def _arguments_ref(walk: Walk, step: WriteStep, key: str) -> BlobRef | None:
    try:
        return blob(_arguments(walk, step, key)[0])[0]
    except Rejected:
        return None
