"""What the product calls: executors of agent steps, and the target that effects write to. Chance scripts both."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from contracts.base import JsonObject, JsonValue
from contracts.requests import AttemptRequest
from libs.mcp import Answered, NotSent, Outcome, RejectedByServer, ToolError, Unknown
from services.dev.minimal_instance import minimal_instance
from services.runner.executors import Failure, Produced, Scope
from tests.simulation.effects import Call
from tests.simulation.process import WORST_MOMENT, Process

_LOOKS: Final = frozenset({"find", "find_late", "list_pull_requests"})
_WRITTEN: Final = (0, 1)
_LATE: Final = (6, 7)
_SHOWN_LATE_SECONDS: Final = 60.0
GOES_ON_SECONDS: Final = 9.0
"""How long after its timeout a call may still be carried out: a little less than the margin of the product."""

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
        if world.hits(WORST_MOMENT * world.faults.stall):
            world.stall(process)
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
    """A server of tools. What it did is told to the auditor at the moment when it is done.

    A call that it has, it may end after its caller has hung up or died, though not later than the margin allows.
    """

    def __init__(self, process: Process) -> None:
        self._process = process

    async def call(
        self,
        _server: Any,
        *,
        tool: str,
        arguments: JsonObject,
        meta: Mapping[str, JsonValue],
        timeout: timedelta,
    ) -> Outcome:
        """One tool call, with the outcomes that the real client tells apart."""
        process, world = self._process, self._process.world
        world.step(process, f"call {tool}")
        if tool in _LOOKS:
            return await self._show(tool, arguments)
        key = str(meta["minutebook/idempotency-key"])
        call = world.audit(lambda: world.auditor.effects.called(key))
        write = _Write(call, key, arguments)
        if not world.hits(world.faults.target):
            written = await self._work(write, world.random.random(), writes=True)
            await process.leave("the target's answer")
            return Answered(written)
        world.count("target")
        return await self._fail(write, world.random.randrange(10), timeout)

    async def _fail(self, write: "_Write", kind: int, timeout: timedelta) -> Outcome:
        process, world = self._process, self._process.world
        takes = world.random.random() * 5
        if kind in _LATE:
            # The caller hears nothing, or hangs up, and the target goes on.
            late = world.random.uniform(0, timeout.total_seconds() + GOES_ON_SECONDS)
            world.count("target goes on")
            self._begin(write, late, writes=True)
            await asyncio.sleep(takes)
        else:
            await self._work(write, takes, writes=kind in _WRITTEN)
        await process.leave("the target's answer")
        match kind:
            case 0 | 2 | 6:
                await asyncio.sleep(timeout.total_seconds())
                return Unknown("no answer in time")
            case 1 | 3 | 7:
                return Unknown("the connection was lost")
            case 4:
                return ToolError("the tool says no")
            case 5:
                return RejectedByServer(400, "bad request")
            case _:
                return NotSent("nobody listens")

    async def _work(self, write: "_Write", seconds: float, *, writes: bool) -> JsonObject:
        return await asyncio.shield(self._begin(write, seconds, writes=writes))

    def _begin(self, write: "_Write", seconds: float, *, writes: bool) -> asyncio.Task[JsonObject]:
        """The target's own part of a call, which the death of its caller ends or does not."""
        process, world = self._process, self._process.world
        goes_on = world.random.random() < 0.5

        async def act() -> JsonObject:
            await asyncio.sleep(seconds)
            written = writes and (process.alive or goes_on)
            record: JsonObject = {}
            if written:
                url = f"https://target/{write.key}"
                run, _, key = write.key.partition(":")
                record = {"run": run, "key": key, "url": url, "html_url": url, "number": len(world.records)}
                record["head"] = {"ref": write.arguments.get("head")}
                record["shown_at"] = world.loop.seconds + world.random.uniform(0, _SHOWN_LATE_SECONDS)
                world.records.append(record)
            world.auditor.effects.over(write.call, written=written)
            return record

        return world.apart(act(), f"the target's work for {process.name}")

    async def _show(self, tool: str, arguments: JsonObject) -> Outcome:
        """What the target has: all that it wrote, or, by a tool that lags behind, what it wrote a while ago."""
        process, world = self._process, self._process.world
        await asyncio.sleep(world.random.random())
        found: list[JsonValue] = [
            record
            for record in world.records
            if _is_asked_for(record, arguments)
            and (tool != "find_late" or float(str(record["shown_at"])) <= world.loop.seconds)
        ]
        broken = world.random.randrange(4) if world.hits(world.faults.target) else 4
        await process.leave("what the target shows")
        world.count(f"looks by {tool}")
        if not world.shows_records or broken == 0:
            return NotSent("nobody listens")
        match broken:
            case 1:
                return Unknown("the connection was lost")
            case 2:
                return ToolError("the tool says no")
            case 3:
                found *= 2
        return Answered({"result": found} if tool == "list_pull_requests" else {"records": found})


@dataclass(frozen=True, slots=True)
class _Write:
    """What the target is asked to write."""

    call: Call
    key: str
    arguments: JsonObject


def _is_asked_for(record: JsonObject, arguments: JsonObject) -> bool:
    if "run" in arguments:
        return record["run"] == arguments["run"]
    return record["head"] == {"ref": arguments.get("head")}
