"""What of a target may change while it is served: what befalls its calls, and how long they take."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from starlette.types import ASGIApp

from services.dev.sandbox_mcp.book import Book


@dataclass(slots=True)
class Fault:
    """Something that befalls the calls to come, `times` of them, of these `tools`; of those that write where none is.

    `error`: the tool says that it failed. `hang`: no answer ever comes. `drop`: the connection is cut in its answer.
    `garbage`: the answer is a page of something else.
    With `acted` the record was made nevertheless, before that. `away`: nobody is let in, however often they come.
    """

    kind: Literal["error", "hang", "drop", "garbage", "away"]
    acted: bool = False
    times: int = 1
    tools: tuple[str, ...] = ()

    def befalls(self, tool: str, *, writes: bool) -> bool:
        return self.times > 0 and (tool in self.tools if self.tools else writes)


@dataclass(slots=True)
class Sandbox:
    """The server: serve `app`, whose MCP endpoint is `/mcp`. `faults` and `delay_seconds` may change at any time.

    Faults are used up in their order, one per call that they befall, but for `away`, which lasts until taken out;
    `delay_seconds` passes before any call acts.
    """

    file: Path
    app: ASGIApp = field(init=False)
    faults: list[Fault] = field(default_factory=list)
    delay_seconds: float = 0.0

    def calls(self) -> list[dict[str, Any]]:
        """Return every call that acted, in the order of their numbers."""
        return Book(self.file).lines()

    @property
    def away(self) -> bool:
        """Whether nobody is let in now."""
        return any(fault.kind == "away" for fault in self.faults)

    def next_fault(self, tool: str, *, writes: bool) -> Fault | None:
        """Use up one turn of the first fault that befalls a tool; None when the call is to go well."""
        self.faults[:] = [fault for fault in self.faults if fault.times > 0]
        fault = next((fault for fault in self.faults if fault.befalls(tool, writes=writes)), None)
        if fault is not None:
            fault.times -= 1
        return fault
