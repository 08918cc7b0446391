"""Following the answer to the question how a failed step goes on."""

from contracts.events import run as e
from libs.domain.decision import State
from libs.domain.run.programs.definition.endings import stop
from libs.domain.run.programs.definition.failures import fail
from libs.domain.run.walk import Walk


def goes_on(walk: Walk, key: str) -> bool:
    """Follow the answer about a failed step; whether it is to be tried once more now.

    `approve` lets a refused gate pass, with the artefact that was refused or what the person made of it; everything
    else is tried again. So it is with `request_changes`, whose comment the next attempt is told.
    """
    record = walk.state.step(key)
    child = walk.child(record.open_id)
    if isinstance(child, State) and child.status == "withdrawn" and record.failure_class is not None:
        # The run had failed meanwhile, and somebody lets it go on: the question is put again.
        fail(walk, key, record.failure_class, record.message or f"{key} has failed")
        return False
    if not isinstance(child, State) or child.outcome is None:
        return False
    match child.outcome:
        case "answer":
            return False  # only a question takes one
        case "approve" if record.failure_class == "gate_failed":
            walk.emit(
                e.RunStepSucceeded(
                    at=walk.now, step=key, outcome="approve", output=child.revised or child.artifact, by=child.by
                )
            )
            return False
        case "approve" | "request_changes":
            _try_again(walk, key, child)
            return True
        case "reject" | "cancel":
            stop(walk, key, child.outcome, child)
            return False


def _try_again(walk: Walk, key: str, child: State) -> None:
    failed = [name for name, record in walk.state.below(key).items() if record.status == "failed"]
    walk.again |= {key, *failed}
    if child.comment is not None:
        feedback = e.Feedback(
            source_step=key,
            kind="request_changes",
            comment=child.comment,
            by=child.by.name if child.by else None,
            by_id=child.by.person if child.by else None,
            previous=child.artifact,
            revised=child.revised,
        )
        walk.comments.update(dict.fromkeys((key, *failed), feedback))
