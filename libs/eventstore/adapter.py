"""What the parts of the PostgreSQL adapter share."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import asyncpg

from contracts.errors import Broken, Unavailable
from libs.eventstore.mapper import Mapper
from libs.eventstore.people import PostgresPeople
from libs.postgres.errors import CONTENDED, FULL, READ_ONLY
from libs.postgres.pool import execute, fetch, fetchrow
from libs.telemetry.outage import Outage

UNNAMED: Final = "unnamed"

ROOM_SECONDS: Final = 5.0
"""How long no write must have found a full disk for it to have room: what is small still fits here and there."""

_NEEDS_ROOM: Final = "insert into"
"""What a statement says that only a disk with room carries out. Changed rows mostly fit where the old ones were."""

_WRITES: Final = re.compile(r"\b(insert into|update|delete from)\b")
"""What a server that only reads refuses, and says by carrying it out that it writes again."""

_SEALING: Final = "sealing."
"""How codes begin that say that a key is missing, not the database."""


class Adapter:
    """A part of the adapter: one pool, one mapper. `service` is whose it is, for the log.

    Without a mapper the keys of persons lie unsealed in the database, as suits one that nobody keeps.
    """

    def __init__(self, pool: asyncpg.Pool, *, mapper: Mapper | None = None, service: str = UNNAMED) -> None:
        self._pool = pool
        self._mapper = mapper or Mapper(people=PostgresPeople(pool))
        self._outage = Outage(away="PostgreSQL is away, trying again", back="PostgreSQL is back", service=service)
        self._full = Outage(
            away="PostgreSQL has no room to write, trying again",
            back="PostgreSQL has room again",
            quiet_seconds=ROOM_SECONDS,
            service=service,
        )
        self._read_only = Outage(
            away="PostgreSQL only reads, trying again", back="PostgreSQL writes again", service=service
        )
        self._unopened = Outage(
            away="the keys of persons do not open, trying again", back="the keys of persons open", service=service
        )

    @property
    def mapper(self) -> Mapper:
        """How facts of this database are read, by those that read them with SQL of their own."""
        return self._mapper

    @property
    def erasures(self) -> int:
        return self._mapper.people.ring.erasures

    async def _fetch_facts(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        """Fetch rows of which some are facts, with the keys of whom they name at hand."""
        with self._watched(sql):
            rows = await fetch(self._pool, sql, *arguments)
            await self._mapper.people.recall(rows)
        if self._unopened.lasting:
            self._unopened.back()
        return rows

    async def _fetch(self, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        with self._watched(sql):
            return await fetch(self._pool, sql, *arguments)

    async def _fetchrow(self, sql: str, *arguments: Any) -> asyncpg.Record | None:
        with self._watched(sql):
            return await fetchrow(self._pool, sql, *arguments)

    async def _execute(self, sql: str, *arguments: Any) -> None:
        with self._watched(sql):
            await execute(self._pool, sql, *arguments)

    @contextmanager
    def _watched(self, sql: str) -> Iterator[None]:
        """Who calls gets the error and tries again; the operator is told once."""
        try:
            yield
        except Unavailable as error:
            if error.code == FULL:
                self._full.away(code=error.code, reason=error.message)
            elif error.code == READ_ONLY:
                self._read_only.away(code=error.code, reason=error.message)
            elif error.code.startswith(_SEALING):
                self._unopened.away(code=error.code, reason=error.message)
            elif error.code != CONTENDED:
                self._outage.away(code=error.code, reason=error.message)
            raise
        self._outage.back()
        if _NEEDS_ROOM in sql:
            self._full.back()
        if self._read_only.lasting and _WRITES.search(sql):
            self._read_only.back()


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
