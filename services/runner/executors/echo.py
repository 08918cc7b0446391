"""Answers with what it was given and does nothing else: for benchmarks, tests and dry definitions."""

import asyncio
from typing import Final

from contracts.base import JsonObject
from contracts.requests import AttemptRequest
from services.runner.executors.fit import misfits
from services.runner.executors.port import Failure, Produced, Scope

SECONDS_KEY: Final = "echo_seconds"


class EchoExecutor:
    """Outputs `{"context": <the run's context>}`. No I/O, no model, no cost.

    A number in `context.echo_seconds` is how long it takes about it, as a model would.
    """

    name = "echo"

    async def execute(self, request: AttemptRequest, *, scope: Scope) -> Produced | Failure:
        await asyncio.sleep(_seconds(request))
        return _answer(request)

    def at_once(self, request: AttemptRequest) -> Produced | Failure | None:
        return None if _seconds(request) else _answer(request)

    async def close(self) -> None:
        return


def _answer(request: AttemptRequest) -> Produced | Failure:
    output: JsonObject = {"context": request.context}
    misfit = misfits(output, request.output_schema)
    if misfit is not None:
        return Failure("output_invalid", f"the output does not fit its schema: {misfit}")
    return Produced(output)


def _seconds(request: AttemptRequest) -> float:
    seconds = request.context.get(SECONDS_KEY)
    return seconds if isinstance(seconds, int | float) and seconds > 0 else 0
