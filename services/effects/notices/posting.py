"""Posts notices over HTTP.

Addresses come from secrets of the installation alone, and no redirect is followed. An address may be a secret itself,
as those of chats are, so no message of ours has one in it.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Final

import httpx

from services.effects.notices.outcomes import Lost, NotSent, Outcome, Sent

CONNECT_SHARE: Final = 1 / 3
"""Of a try's time: a connection that has not come by then is given up, and nothing was sent."""

_NOT_SENT: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


class Posting:
    """One client for all channels; each try is bounded by its own time."""

    def __init__(self) -> None:
        self._opened: httpx.AsyncClient | None = None

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, within: timedelta) -> Outcome:
        """Post a body once. Of the answer only the status is read."""
        seconds = within.total_seconds()
        try:
            async with (
                asyncio.timeout(seconds),
                self._http().stream(
                    "POST",
                    url,
                    content=body,
                    headers={"content-type": "application/json", **headers},
                    timeout=httpx.Timeout(None, connect=seconds * CONNECT_SHARE, pool=seconds * CONNECT_SHARE),
                ) as response,
            ):
                return _judged(response.status_code)
        except httpx.InvalidURL:
            return NotSent("the address is no URL; mend the secret that the channel's url_ref names")
        except _NOT_SENT as error:
            return NotSent(f"no connection: {type(error).__name__}")
        except (httpx.HTTPError, TimeoutError) as error:
            return Lost(f"no answer: {type(error).__name__}")

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.aclose()

    def _http(self) -> httpx.AsyncClient:
        """Opened at the first try: most installations post nothing, and certificates take a while to load."""
        if self._opened is None:
            self._opened = httpx.AsyncClient(follow_redirects=False, headers={"user-agent": "minutebook"})
        return self._opened


def _judged(status: int) -> Outcome:
    """What an answer says. One from behind the door (5xx) does not say that nothing was done."""
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return Sent()
    if status == HTTPStatus.GONE:
        return NotSent("answered 410: the receiver wants no more", final=True)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.REQUEST_TIMEOUT:
        return Lost(f"answered {status}")
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return NotSent(f"answered {status}: redirects are not followed; name the final address")
    return NotSent(f"answered {status}")
