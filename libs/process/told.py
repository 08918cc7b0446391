"""Which failures are told already: by the connection itself, once for everything that uses it."""

from contracts.errors import MinutebookError, Unavailable
from libs.bus.port import NOT_CONNECTED
from libs.eventstore.eras import ENDED


def told(error: MinutebookError) -> bool:
    """Whether the operator reads of it without another line."""
    return isinstance(error, Unavailable) and (
        error.code in (NOT_CONNECTED, ENDED) or error.code.startswith("postgres.")
    )


__all__ = ["told"]
