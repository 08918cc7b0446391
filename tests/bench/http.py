"""HTTP/1.1 as a load generator needs it: kept connections, and as little of the machine's time as can be."""

import asyncio
import json
from typing import Any, Self
from urllib.parse import urlsplit

from services.api.door import PREFIX


class Refused(Exception):
    """The API answered with something else than success."""


class Connection:
    """One kept connection with one request at a time."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._head = f"host: {self._host}:{self._port}\r\nauthorization: Bearer {token}\r\n"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=1 << 24)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._writer is not None
        self._writer.close()

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request below the API's prefix and return what it answers.

        Raises:
            Refused: the answer is no success; with status and body.
        """
        assert self._reader is not None, "entered before"
        assert self._writer is not None, "entered before"
        content = b"" if body is None else json.dumps(body).encode()
        kind = "" if body is None else "content-type: application/json\r\n"
        head = f"{method} {PREFIX}{path} HTTP/1.1\r\n{self._head}{kind}content-length: {len(content)}\r\n\r\n"
        self._writer.write(head.encode() + content)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        status = int(answer[9:12])
        length = int(answer.partition(b"content-length:")[2].partition(b"\r\n")[0])
        text = await self._reader.readexactly(length)
        if status >= 300:
            raise Refused(f"{method} {path} answered {status}: {text[:500].decode(errors='replace')}")
        return json.loads(text)
