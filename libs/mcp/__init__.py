"""The outbound side of the Model Context Protocol: one tool call, and what may be known of it afterwards.

Knows nothing of effects. Promises that a call is sent at most once, and that an outcome which says "not done" is sure.
"""

from libs.mcp.client import Answered, NotSent, Outcome, RejectedByServer, ToolError, Unknown, call_tool

__all__ = ["Answered", "NotSent", "Outcome", "RejectedByServer", "ToolError", "Unknown", "call_tool"]
