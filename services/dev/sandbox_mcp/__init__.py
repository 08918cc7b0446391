"""Targets to write to: a real MCP server whose pull requests, CRM records and issues are lines of a file.

Each call that acted is one JSON line, synced before it is answered: `{at, tool, arguments, meta, number, by}`, where
`by` says whose token it bore. So what was written to the outside world can be counted after any kill. It does not
deduplicate, as real servers do not: a second call with the same idempotency key is a second line, and a fault of the
caller.

How a target fails can be rehearsed: `GET` and `PUT /faults`, a JSON list, with the server's token.
"""

from services.dev.sandbox_mcp.box import Fault, Sandbox
from services.dev.sandbox_mcp.server import SERVER, sandbox

__all__ = ["SERVER", "Fault", "Sandbox", "sandbox"]
