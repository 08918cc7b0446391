"""A step's turn: what holds for every kind before the step itself is looked at."""

from datetime import datetime

from contracts.events import run as e
from libs.domain.run.programs.definition.escalations import goes_on
from libs.domain.run.programs.definition.failures import fail
from libs.domain.run.walk import Stepper, Walk
from libs.language.model import AgentStep, Step, Wait, WriteStep
from libs.language.paths import MISSING, resolve


def answered(walk: Walk, key: str) -> bool:
    """Whether no question is open about how the step goes on. An answer that came is followed."""
    record = walk.state.step(key)
    asked = record.status == "waiting" and record.waits_on == "escalation" and key not in walk.again
    return not asked or goes_on(walk, key)


def follow(walk: Walk, step: Step, key: str, stepper: Stepper) -> None:
    """Look at a step, once its delay has passed and a question about it is answered."""
    if not answered(walk, key):
        return
    record = walk.state.step(key)
    # What its round has begun before, such as a decision whose approval went stale, is put off no more.
    if record.status == "pending" and record.attempt == 0 and step.wait is not None and not _is_item(step, key):
        _delay(walk, step.wait, key)
    if walk.state.step(key).status == "delayed" and not walk.begins(key):
        return
    if walk.moving:
        stepper(walk, step, key)
        walk.again.discard(key)


def _is_item(step: Step, key: str) -> bool:
    """Whether the key is of one item: the delay of a step with `for_each` is of the whole."""
    return isinstance(step, AgentStep | WriteStep) and step.for_each is not None and "." in key


def _delay(walk: Walk, wait: Wait, key: str) -> None:
    """Put the step off to the moment that its `wait` names; one that has passed does not wait."""
    until = walk.now + wait.for_ if wait.for_ is not None else _moment(walk, wait.until or "", key)
    if until is not None and until > walk.now:
        walk.emit(e.RunStepDelayed(at=walk.now, step=key, round=walk.state.step(key).round, until=until))


def _moment(walk: Walk, text: str, key: str) -> datetime | None:
    """The instant that `wait.until` is or leads to; None after the step has failed for want of one."""
    literal = _instant(text)
    if literal is not None:
        return literal
    found = resolve(text, walk.view)
    if found is None or found is MISSING:
        fail(walk, key, "missing_data", f"wait.until of {key} reads {text}, which has no value")
        return None
    moment = _instant(found) if isinstance(found, str) else None
    if moment is None:
        fail(
            walk,
            key,
            "missing_data",
            f"wait.until of {key} reads {text}, which is no instant; write it as 2026-03-02T09:00:00Z, with its offset",
        )
    return moment


def _instant(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
