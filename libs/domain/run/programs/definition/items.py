"""Steps with `for_each`: the same step once per item of a list, joined in order under the step's key."""

from typing import Final

from contracts.base import JsonValue
from contracts.events import run as e
from libs.domain.run.programs.definition.branches import still_failed
from libs.domain.run.programs.definition.failures import fail
from libs.domain.run.programs.definition.turns import follow
from libs.domain.run.state import UNDER_WAY
from libs.domain.run.walk import Stepper, Walk
from libs.language.model import AgentStep, ForEach, WriteStep
from libs.language.paths import MISSING, resolve

ITEMS_MAX: Final = 500
"""More would make one run's history and head a queue of their own: start a run per item instead."""


def each(walk: Walk, step: AgentStep | WriteStep, for_each: ForEach, key: str, stepper: Stepper) -> None:
    """Pin the list when the step begins; keep at most `max_parallel` items under way; join when all have succeeded."""
    if walk.begins(key) and not _enter(walk, for_each, key):
        return
    if not walk.state.step(key).holds_others:
        return
    names = [f"{key}.{index}" for index in range(walk.state.step(key).count)]
    free = for_each.max_parallel - sum(walk.state.step(name).status in UNDER_WAY for name in names)
    for name in names:
        before = walk.state.step(name).status
        begins = before == "pending" or name in walk.again
        if before == "succeeded" or (begins and free <= 0):
            continue
        follow(walk, step, name, stepper)
        if not walk.moving:
            return
        free += (before in UNDER_WAY) - (walk.state.step(name).status in UNDER_WAY)
    if still_failed(walk, names):
        return
    if all(walk.state.step(name).status == "succeeded" for name in names):
        walk.emit(e.RunStepSucceeded(at=walk.now, step=key, output=walk.keep([walk.output(name) for name in names])))


def _enter(walk: Walk, for_each: ForEach, key: str) -> bool:
    """Pin the items. A list that was pinned in this round stays, so a step tried again repeats only what failed."""
    items: JsonValue = resolve(for_each.items, walk.view)  # type: ignore[assignment]  # MISSING is no list either
    if not isinstance(items, list):
        what = "has no value" if items is None or items is MISSING else "is no list"  # type: ignore[comparison-overlap]
        fail(walk, key, "missing_data", f"for_each of {key} reads {for_each.items}, which {what}")
        return False
    if len(items) > ITEMS_MAX:
        message = f"for_each of {key} reads {for_each.items} of {len(items)} items; ITEMS_MAX is {ITEMS_MAX}"
        fail(walk, key, "output_invalid", message)
        return False
    walk.emit(
        e.RunItemsEntered(
            at=walk.now, step=key, round=walk.state.step(key).round, items=walk.keep(items), count=len(items)
        )
    )
    return True
