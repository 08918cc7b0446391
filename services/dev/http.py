"""What the development stack serves beside the product: on this machine alone, with little time to end."""

from datetime import timedelta
from typing import Final

from starlette.types import ASGIApp

from libs.process import http
from libs.process.http import RunningHttp

_DRAIN: Final = timedelta(seconds=2)


async def serve(app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> RunningHttp:
    """Serve `app` and return when it takes connections; port 0 means any free one.

    Raises:
        contracts.errors.Unavailable: the port is taken, or the application did not start.
    """
    return await http.serve(app, http.listen(host, port), drain=_DRAIN)


__all__ = ["RunningHttp", "serve"]
