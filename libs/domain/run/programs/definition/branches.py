"""Parallel steps: branches side by side, joined under the step's key."""

from contracts.events import run as e
from libs.domain.run.programs.definition.agents import agent
from libs.domain.run.programs.definition.endings import cancel_others
from libs.domain.run.programs.definition.failures import fail
from libs.domain.run.programs.definition.turns import follow
from libs.domain.run.state import UNDER_WAY
from libs.domain.run.walk import Walk
from libs.language.model import ParallelStep


def parallel(walk: Walk, step: ParallelStep, key: str) -> None:
    """Run the branches; join the outputs of all, or of the first that succeeds."""
    if walk.begins(key):
        walk.emit(e.RunBranchesEntered(at=walk.now, step=key, round=walk.state.step(key).round))
    if not walk.state.step(key).holds_others:
        return
    for branch in step.parallel:
        follow(walk, branch, f"{key}.{branch.key}", agent)
        if not walk.moving:
            return
    if step.join == "any":
        _join_any(walk, step, key)
    else:
        _join_all(walk, step, key)


def _join_all(walk: Walk, step: ParallelStep, key: str) -> None:
    names = {branch.key: f"{key}.{branch.key}" for branch in step.parallel}
    if still_failed(walk, list(names.values())):
        return
    if all(walk.state.step(name).status == "succeeded" for name in names.values()):
        joined = {branch: walk.output(name) for branch, name in names.items()}
        walk.emit(e.RunStepSucceeded(at=walk.now, step=key, output=walk.keep(joined)))


def _join_any(walk: Walk, step: ParallelStep, key: str) -> None:
    """The first branch in order that has succeeded wins: of two that came together, that is no worse than any other."""
    records = {branch.key: walk.state.step(f"{key}.{branch.key}") for branch in step.parallel}
    winner = next((branch for branch, record in records.items() if record.status == "succeeded"), None)
    if winner is not None:
        cancel_others(walk, key, f"{key}.{winner} has succeeded")
        output = walk.keep({winner: walk.output(f"{key}.{winner}")})
        walk.emit(e.RunStepSucceeded(at=walk.now, step=key, output=output))
    elif all(record.status == "failed" for record in records.values()):
        last = records[step.parallel[-1].key]
        said = "; ".join(f"{branch}: {record.message}" for branch, record in records.items())
        fail(walk, key, last.failure_class or "default", f"every branch has failed: {said}")


def still_failed(walk: Walk, names: list[str]) -> bool:
    """Suspend the run again for a branch or item that failed, once nothing beside it is under way.

    Another was retried and has come to its end: this one still stands in the way.
    """
    records = {name: walk.state.step(name) for name in names}
    failed = next((name for name, record in records.items() if record.status == "failed"), None)
    if failed is None or any(record.status in UNDER_WAY for record in records.values()):
        return False
    walk.emit(
        e.RunSuspended(
            at=walk.now,
            failure_class=records[failed].failure_class,
            reason=records[failed].message or f"{failed} has failed",
            step=failed,
        )
    )
    return True
