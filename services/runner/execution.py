"""One attempt from its request to its recorded report."""

import asyncio
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from opentelemetry.trace import Span
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
from services.runner.executors import OUTPUT_BYTES_MAX, AtOnce, Executor, Failure, Produced, Scope
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


@dataclass(frozen=True, slots=True)
class Report:
    """What came of an attempt, as its owner is told."""

    command: attempt.Command
    traceparent: str | None

    def item(self, work: Work) -> Item[attempt.Command]:
        """The report as the last one of its claim."""
        return Item(
            stream_id=work.attempt_id,
            command=self.command,
            actor=actor("runner"),
            causation=work.claim,
            traceparent=self.traceparent,
            claim=work.claim,
            release=True,
        )


class Execution:
    """Carries out claimed attempts with the executors that this runner has."""

    def __init__(self, executors: Mapping[str, Executor], reports: Reports, *, runner: str) -> None:
        self._executors = executors
        self._at_once = {name: executor for name, executor in executors.items() if isinstance(executor, AtOnce)}
        self._reports = reports
        self._runner = runner

    def at_once(self, work: Work) -> Report | None:
        """Carry out an attempt that needs to wait for nothing, started or not; None for any other."""
        executor = self._at_once.get(work.state.executor)
        request = _request(work) if executor is not None else None
        if executor is None or not isinstance(request, AttemptRequest):
            return None
        try:
            outcome = executor.at_once(request)
        except Exception as error:
            outcome = _failed(work, error)
        if outcome is None:
            return None
        with _span(work):
            faultpoint("attempt.executed")
            return Report(_report(work.claim, outcome, runner=self._runner), current_traceparent())

    async def carry_out(self, work: Work) -> None:
        """Execute an attempt and record what came of it, in a span of the run's trace.

        Returns only when the report is recorded, or refused since the claim is not the current one any more.
        """
        with _span(work):
            outcome = await self._execute(work)
            faultpoint("attempt.executed")
            await self.record(work, Report(_report(work.claim, outcome), current_traceparent()))

    async def _execute(self, work: Work) -> Produced | Failure:
        request = _request(work)
        if isinstance(request, Failure):
            return request
        try:
            return await self._executors[work.state.executor].execute(
                request, scope=Scope(attempt_id=work.attempt_id, claim=work.claim)
            )
        except Exception as error:
            return _failed(work, error)

    async def record(self, work: Work, report: Report) -> None:
        """Report until the record answers. While it cannot be reached the lease decides who may go on trying."""
        log = _log.bind(attempt_id=str(work.attempt_id), run_id=str(work.state.run_id), step=work.state.step)
        delay = REPORT_AGAIN_SECONDS
        while True:
            result = await self._reports.report(report.item(work))
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
                case _ if isinstance(report.command, attempt.Succeed):
                    log.error("result cannot be recorded", code=result.code)
                    failure = Failure("default", "the result cannot be recorded: " + result.message)
                    report = replace(report, command=_report(work.claim, failure, runner=self._runner))
                case _:
                    log.error("failure cannot be recorded, the lease will end", code=result.code)
                    return


def _span(work: Work) -> AbstractContextManager[Span]:
    """The span of an attempt, in the run's trace."""
    attributes = {"attempt_id": str(work.attempt_id), "step": work.state.step, "executor": work.state.executor}
    return span("attempt", traceparent=work.traceparent, attributes=attributes)


def _request(work: Work) -> AttemptRequest | Failure:
    if work.content is None:
        return Failure("default", "the request of this attempt is not stored any more")
    try:
        return AttemptRequest.model_validate_json(work.content)
    except ValidationError:
        return Failure("default", "the request of this attempt cannot be read by this version of the runner")


def _failed(work: Work, error: Exception) -> Failure:
    """What an executor's bug is to the run. The log has it whole."""
    executor = work.state.executor
    _log.error("executor failed", attempt_id=str(work.attempt_id), executor=executor, exc_info=error)
    return Failure("default", f"{type(error).__name__} in executor {executor}; see the runner's log")


def _report(claim: UUID, outcome: Produced | Failure, *, runner: str | None = None) -> attempt.Succeed | attempt.Fail:
    """The command that an outcome is. An output that cannot be kept is a failure."""
    if isinstance(outcome, Produced):
        try:
            output, content = blob(outcome.output)
        except Malformed as error:
            return _report(claim, _unfit(outcome, error.message), runner=runner)
        if output.bytes > OUTPUT_BYTES_MAX:
            unfit = _unfit(outcome, f"the output has {output.bytes} bytes; at most {OUTPUT_BYTES_MAX} are kept")
            return _report(claim, unfit, runner=runner)
        return attempt.Succeed(
            claim=claim,
            runner=runner,
            output=output,
            content=content,
            usage=outcome.usage,
            cost_microdollars=outcome.cost_microdollars,
            model=outcome.model,
            turns=outcome.turns,
        )
    return attempt.Fail(
        claim=claim,
        runner=runner,
        failure_class=outcome.failure_class,
        message=_UNKEEPABLE.sub("\N{REPLACEMENT CHARACTER}", outcome.message[:MESSAGE_CHARS_MAX]),
        usage=outcome.usage,
        cost_microdollars=outcome.cost_microdollars,
        model=outcome.model,
        turns=outcome.turns,
    )


def _unfit(outcome: Produced, message: str) -> Failure:
    return Failure("output_invalid", message, outcome.usage, outcome.cost_microdollars, outcome.model, outcome.turns)
