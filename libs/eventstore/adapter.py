"""What the parts of the PostgreSQL adapter share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import asyncpg

from contracts.errors import Broken, Unavailable
from libs.eventstore.mapper import Mapper
from libs.postgres.errors import CONTENDED
from libs.postgres.pool import execute, fetch, fetchrow
from libs.telemetry.outage import Outage

UNNAMED: Final = "unnamed"


class Adapter:
    """A part of the adapter: one pool, one mapper. `service` is whose it is, for the log."""

    def __init__(self, pool: asyncpg.Pool, *, mapper: Mapper | None = None, service: str = UNNAMED) -> None:
        self._pool = pool
        self._mapper = mapper or Mapper()
        self._outage = Outage(away="PostgreSQL is away, trying again", back="PostgreSQL is back", service=service)

    async def _fetch(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        with self._watched():
            return await fetch(self._pool, sql, *arguments)

    async def _fetchrow(self, sql: str, *arguments: Any) -> asyncpg.Record | None:
        with self._watched():
            return await fetchrow(self._pool, sql, *arguments)

    async def _execute(self, sql: str, *arguments: Any) -> None:
        with self._watched():
            await execute(self._pool, sql, *arguments)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Who calls gets the error and tries again; the operator is told once."""
        try:
            yield
        except Unavailable as error:
            if error.code != CONTENDED:
                self._outage.away(code=error.code, reason=error.message)
            raise
        self._outage.back()


def digest_bytes(digest: str) -> bytes:
    """Return a SHA-256 in hexadecimal as `blobs` keeps it.

    Raises:
        contracts.errors.Broken: it is none.
    """
    try:
        raw = bytes.fromhex(digest)
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise Broken("blob.digest", "a blob's digest is a SHA-256 of 64 lower-case hexadecimal digits")
    return raw
