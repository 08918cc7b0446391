"""What the product calls: executors of agent steps, and the target that effects write to. Chance scripts both."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from contracts.base import JsonObject, JsonValue
from contracts.requests import AttemptRequest
from libs.mcp import Answered, NotSent, Outcome, RejectedByServer, ToolError, Unknown
from services.dev.minimal_instance import minimal_instance
from services.runner.executors import Failure, Produced, Scope
from tests.simulation.process import Process

_outputs: dict[str, JsonObject] = {}


class ScriptedExecutor:
    """Takes a while and produces what the step's schema wants; or fails, raises, or takes longer than a lease."""

    def __init__(self, process: Process, name: str) -> None:
        self.name = name
        self._process = process

    async def execute(self, request: AttemptRequest, *, scope: Scope) -> Produced | Failure:
        process, world = self._process, self._process.world
        await process.reach(f"execute {request.step}")
        world.audit(lambda: world.auditor.executes(scope.attempt_id, scope.claim))
        try:
            return await self._execute(request)
        finally:
            world.auditor.stops(scope.claim)

    async def _execute(self, request: AttemptRequest) -> Produced | Failure:
        world = self._process.world
        if not world.hits(world.faults.executor):
            await asyncio.sleep(world.random.random() * 2)
            return Produced(_output(request, world.random.random()), cost_microdollars=10)
        match world.random.randrange(6):
            case 0:
                await asyncio.sleep(world.random.uniform(0, 90))
                return Produced(_output(request, world.random.random()), cost_microdollars=10)
            case 1:
                raise RuntimeError("the executor has a bug")
            case 2:
                await asyncio.sleep(world.random.uniform(0, 5))
                return Failure("timeout", "it took too long")
            case 3:
                return Failure("connector_unavailable", "nobody answers")
            case 4:
                return Failure("output_invalid", "the output is not what was asked for")
            case _:
                return Failure("default", "it broke")

    async def close(self) -> None:
        return


def _output(request: AttemptRequest, drawn: float) -> JsonObject:
    """The least that fits the schema; without one, what the workflows of the simulation look at."""
    if request.output_schema is None:
        parts: list[JsonValue] = [{"id": f"part {number}"} for number in range(3)]
        return {"score": int(drawn < 0.2), "request": {"title": f"{request.step} {drawn}"}, "parts": parts}
    known = json.dumps(request.output_schema, sort_keys=True)
    if known not in _outputs:
        made = minimal_instance(request.output_schema)
        assert isinstance(made, dict)
        _outputs[known] = made
    return _outputs[known]


class Target:
    """A server of tools. What it did is told to the auditor at the moment when it is done."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def call(self, _server: Any, *, meta: Mapping[str, JsonValue], timeout: Any, **_call: Any) -> Outcome:
        """One tool call, with the outcomes that the real client tells apart."""
        process, world = self._process, self._process.world
        world.step(process, "call the target")
        key = str(meta["minutebook/idempotency-key"])
        effect_id = world.audit(lambda: world.auditor.called(key))
        if not world.hits(world.faults.target):
            await asyncio.sleep(world.random.random())
            world.audit(lambda: world.auditor.written(effect_id))
            await process.leave("the target's answer")
            return Answered({"html_url": "https://target/1"})
        kind = world.random.randrange(10)
        world.count("target")
        await asyncio.sleep(world.random.random() * 5)
        if kind in (0, 1):
            world.audit(lambda: world.auditor.written(effect_id))
        await process.leave("the target's answer")
        match kind:
            case 0 | 2:
                await asyncio.sleep(timeout.total_seconds())
                return Unknown("no answer in time")
            case 1 | 3:
                return Unknown("the connection was lost")
            case 4:
                return ToolError("the tool says no")
            case 5:
                return RejectedByServer(400, "bad request")
            case _:
                return NotSent("nobody listens")
