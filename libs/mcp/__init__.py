"""The outbound side of the Model Context Protocol: one tool call, and what may be known of it afterwards;
and what tools a server has.

Knows nothing of effects. Promises that a call is sent at most once, and that an outcome which says "not done" is sure.
"""

from libs.mcp.client import Answered, NotSent, Outcome, RejectedByServer, ToolError, Unknown, call_tool
from libs.mcp.listing import list_tools
from libs.mcp.transports import Address, Http, Stdio

__all__ = [
    "Address",
    "Answered",
    "Http",
    "NotSent",
    "Outcome",
    "RejectedByServer",
    "Stdio",
    "ToolError",
    "Unknown",
    "call_tool",
    "list_tools",
]
