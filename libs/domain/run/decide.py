"""What follows from a command to a run."""

from datetime import datetime
from typing import assert_never

from libs.domain.core import Decided
from libs.domain.run import forking, operating, starting
from libs.domain.run.commands import (
    Advance,
    Cancel,
    Complete,
    Create,
    Fork,
    Restart,
    Resume,
    RetryStep,
    RunCommand,
    Suspend,
)
from libs.domain.run.programs.definition import advance
from libs.domain.run.state import State
from libs.domain.run.walk import Walk


def decide(command: RunCommand, state: State, now: datetime) -> Decided:
    """Return the facts that follow from a command; nothing when they are already true.

    Raises:
        contracts.errors.Rejected: ``run.not_found``, ``step.not_manual`` (404); ``run.not_yours``,
            ``project.not_yours``, ``step.not_yours`` (403); ``run.context_missing``, ``run.variant_unknown``,
            ``output_invalid``, ``fork.…`` (422); ``admission.full`` (429); 409: ``definition.disabled``,
            ``run.key_reused``, ``run.not_open``, ``run.not_suspended``, ``run.held``, ``run.too_long``,
            ``step.failed``, ``step.not_failed``, ``step.not_retryable``, ``step.completed``, ``step.not_open``.
    """
    match command:
        case Create():
            return starting.create(command, state, now)
        case Restart():
            return starting.restart(command, state, now)
        case Fork():
            return forking.fork(command, state, now)
        case Advance():
            walk = Walk.of(command.run_id, now, state, command.evidence)
            return operating.go_on_settled(walk) if operating.is_settled(walk) else advance(walk)
        case Complete():
            return operating.complete(command, state, now)
        case Cancel():
            return operating.cancel(command, state, now)
        case Suspend():
            return operating.suspend(command, state, now)
        case Resume():
            return operating.resume(command, state, now)
        case RetryStep():
            return operating.retry(command, state, now)
        case _:
            assert_never(command)
