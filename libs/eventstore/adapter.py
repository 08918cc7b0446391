"""What the parts of the PostgreSQL adapter share."""

import asyncpg

from contracts.errors import Broken
from libs.eventstore.mapper import Mapper


class Adapter:
    """A part of the adapter: one pool, one mapper."""

    def __init__(self, pool: asyncpg.Pool, *, mapper: Mapper | None = None) -> None:
        self._pool = pool
        self._mapper = mapper or Mapper()


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
