"""One attempt from its request to its recorded report."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pydantic import ValidationError

from contracts.errors import Conflict, Malformed, Rejected, Unavailable
from contracts.requests import AttemptRequest
from libs.canonical import blob
from libs.domain import attempt
from libs.faultpoints import faultpoint
from libs.owner import Done, Item
from libs.process import actor
from libs.telemetry.logs import get_logger
from libs.telemetry.tracing import current_traceparent, span
from services.runner.executors import OUTPUT_BYTES_MAX, Executor, Failure, Produced, Scope
from services.runner.reports import Reports

MESSAGE_CHARS_MAX: Final = 2_000
REPORT_AGAIN_SECONDS: Final = 0.25
REPORT_AGAIN_SECONDS_MAX: Final = 5.0

# PostgreSQL keeps neither NUL nor half a surrogate pair, and a provider's words may hold anything.
_UNKEEPABLE: Final = re.compile("[\x00\ud800-\udfff]")

_log = get_logger("runner")


@dataclass(frozen=True, slots=True)
class Work:
    """A started attempt. `content` is its request as it was stored, None when nothing holds it any more."""

    attempt_id: UUID
    claim: UUID
    state: attempt.State
    content: bytes | None
    traceparent: str | None


class Execution:
    """Carries out started attempts with the executors that this runner has."""

    def __init__(self, executors: Mapping[str, Executor], reports: Reports) -> None:
        self._executors = executors
        self._reports = reports

    async def carry_out(self, work: Work) -> None:
        """Execute an attempt and record what came of it, in a span of the run's trace.

        Returns only when the report is recorded, or refused since the claim is not the current one any more.
        """
        state = work.state
        attributes = {"attempt_id": str(work.attempt_id), "step": state.step, "executor": state.executor}
        with span("attempt", traceparent=work.traceparent, attributes=attributes):
            outcome = await self._execute(work)
            faultpoint("attempt.executed")
            await self._record(work, _report(work.claim, outcome))

    async def _execute(self, work: Work) -> Produced | Failure:
        if work.content is None:
            return Failure("default", "the request of this attempt is not stored any more")
        try:
            request = AttemptRequest.model_validate_json(work.content)
        except ValidationError:
            return Failure("default", "the request of this attempt cannot be read by this version of the runner")
        try:
            return await self._executors[work.state.executor].execute(
                request, scope=Scope(attempt_id=work.attempt_id, claim=work.claim)
            )
        except Exception as error:
            _log.exception("executor failed", attempt_id=str(work.attempt_id), executor=work.state.executor)
            return Failure("default", f"{type(error).__name__} in executor {work.state.executor}; see the runner's log")

    async def _record(self, work: Work, report: attempt.Command) -> None:
        """Report until the record answers. While it cannot be reached the lease decides who may go on trying."""
        log = _log.bind(attempt_id=str(work.attempt_id), run_id=str(work.state.run_id), step=work.state.step)
        delay = REPORT_AGAIN_SECONDS
        while True:
            result = await self._reports.report(
                Item(
                    stream_id=work.attempt_id,
                    command=report,
                    actor=actor("runner"),
                    causation=work.claim,
                    traceparent=current_traceparent(),
                    claim=work.claim,
                    release=True,
                )
            )
            match result:
                case Done():
                    return
                case Rejected():
                    log.warning("report dropped, its claim is not the current one", code=result.code)
                    return
                case Unavailable() | Conflict():
                    log.debug("report not recorded yet", code=result.code)
                    await asyncio.sleep(delay)
                    delay = min(delay * 2, REPORT_AGAIN_SECONDS_MAX)
                case _ if isinstance(report, attempt.Succeed):
                    log.error("result cannot be recorded", code=result.code)
                    report = _report(work.claim, Failure("default", "the result cannot be recorded: " + result.message))
                case _:
                    log.error("failure cannot be recorded, the lease will end", code=result.code)
                    return


def _report(claim: UUID, outcome: Produced | Failure) -> attempt.Succeed | attempt.Fail:
    """The command that an outcome is. An output that cannot be kept is a failure."""
    if isinstance(outcome, Produced):
        try:
            output, content = blob(outcome.output)
        except Malformed as error:
            return _report(claim, _unfit(outcome, error.message))
        if output.bytes > OUTPUT_BYTES_MAX:
            return _report(
                claim, _unfit(outcome, f"the output has {output.bytes} bytes; at most {OUTPUT_BYTES_MAX} are kept")
            )
        return attempt.Succeed(
            claim=claim,
            output=output,
            content=content,
            usage=outcome.usage,
            cost_microdollars=outcome.cost_microdollars,
            model=outcome.model,
            turns=outcome.turns,
        )
    return attempt.Fail(
        claim=claim,
        failure_class=outcome.failure_class,
        message=_UNKEEPABLE.sub("\N{REPLACEMENT CHARACTER}", outcome.message[:MESSAGE_CHARS_MAX]),
        usage=outcome.usage,
        cost_microdollars=outcome.cost_microdollars,
        model=outcome.model,
        turns=outcome.turns,
    )


def _unfit(outcome: Produced, message: str) -> Failure:
    return Failure("output_invalid", message, outcome.usage, outcome.cost_microdollars, outcome.model, outcome.turns)
