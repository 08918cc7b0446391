"""Answers with what it was given and does nothing else: for benchmarks, tests and dry definitions."""

from contracts.base import JsonObject
from contracts.requests import AttemptRequest
from services.runner.executors.fit import misfits
from services.runner.executors.port import Failure, Produced, Scope


class EchoExecutor:
    """Outputs `{"context": <the run's context>}`. No I/O, no model, no cost."""

    name = "echo"

    async def execute(self, request: AttemptRequest, *, scope: Scope) -> Produced | Failure:
        output: JsonObject = {"context": request.context}
        misfit = misfits(output, request.output_schema)
        if misfit is not None:
            return Failure("output_invalid", f"the output does not fit its schema: {misfit}")
        return Produced(output)

    async def close(self) -> None:
        return
