"""The vault: secrets of grants, sealed, beside the history that says of each only that it was given.

A secret is written before its fact and forgotten after the fact that ends it, so what the history says counts is here,
and what is here too much can be opened for nobody: a write asks the history first.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Final
from uuid import UUID

import asyncpg

from libs.postgres.pool import execute, fetch, fetchrow, transaction
from libs.sealing import Sealing

ABANDONED_AFTER: Final = timedelta(hours=1)
"""A secret whose fact was never recorded may go after this: a command that is still under way is much younger."""

_KEEP: Final = """
insert into grant_secrets (secret_id, tenant_group, grant_id, sealed) values ($1, $2, $3, $4)
on conflict (secret_id) do nothing
"""
_READ: Final = "select sealed from grant_secrets where secret_id = $1 and tenant_group = $2 and grant_id = $3"
_FORGET: Final = """
delete from grant_secrets
where grant_id = $1 and (secret_id = any($2) or secret_id <> all($3) and written_at < minutebook_now() - $4::interval)
"""

_OLD: Final = """
select secret_id, tenant_group, grant_id, sealed from grant_secrets where secret_id > $1 order by secret_id limit $2
"""
_TAKE: Final = "delete from grant_secrets where secret_id = $1 and sealed = $2 returning written_at"
_PUT: Final = """
insert into grant_secrets (secret_id, tenant_group, grant_id, sealed, written_at) values ($1, $2, $3, $4, $5)
"""
PAGE: Final = 200


class Vault:
    """Keeps and opens secrets. Where the record is in memory (`pool` is None) there are none."""

    def __init__(self, pool: asyncpg.Pool | None, sealing: Sealing) -> None:
        self._pool = pool
        self._sealing = sealing

    async def keep(self, tenant_group: UUID, grant_id: UUID, secret_id: UUID, secret: str) -> None:
        """Seal a secret and write it. One that is kept under this id already stays as it is.

        Raises:
            contracts.errors.Unavailable: there is no sealing key, or the database does not answer.
        """
        sealed = self._sealing.seal(secret.encode(), about=about(grant_id, secret_id))
        await execute(self._required(), _KEEP, secret_id, tenant_group, grant_id, sealed)

    async def open(self, tenant_group: UUID, grant_id: UUID, secret_id: UUID) -> str | None:
        """Return the secret; None when it is not kept.

        Raises:
            contracts.errors.Unavailable: its sealing key is missing, or the database does not answer.
            contracts.errors.Broken: it does not open.
        """
        if self._pool is None:
            return None
        row = await fetchrow(self._pool, _READ, secret_id, tenant_group, grant_id)
        return self._sealing.open(row["sealed"], about=about(grant_id, secret_id)).decode() if row else None

    async def forget(self, grant_id: UUID, ended: Collection[UUID], *, current: UUID | None) -> None:
        """Delete the secrets of a grant that have ended, and those that were abandoned before they were recorded."""
        kept = [] if current is None else [current]
        await execute(self._required(), _FORGET, grant_id, list(ended), kept, ABANDONED_AFTER)

    async def reseal(self) -> int:
        """Seal under the key of now what was sealed with another one, and return how many secrets that were.

        Afterwards the previous key is not needed for grants any more. One that changes meanwhile is left as it is.

        Raises:
            contracts.errors.Unavailable: a key is missing, or the database does not answer.
            contracts.errors.Broken: one does not open.
        """
        pool, after, count = self._required(), UUID(int=0), 0
        while rows := await fetch(pool, _OLD, after, PAGE):
            after = rows[-1]["secret_id"]
            for row in rows:
                count += 0 if self._sealing.current(row["sealed"]) else await self._seal_anew(pool, row)
        return count

    async def _seal_anew(self, pool: asyncpg.Pool, row: asyncpg.Record) -> int:
        belongs = about(row["grant_id"], row["secret_id"])
        sealed = self._sealing.seal(self._sealing.open(row["sealed"], about=belongs), about=belongs)
        async with transaction(pool) as connection:  # nothing is ever changed in this table, so it is put anew
            written_at = await connection.fetchval(_TAKE, row["secret_id"], row["sealed"])
            if written_at is None:
                return 0
            place = (row["secret_id"], row["tenant_group"], row["grant_id"])
            await connection.execute(_PUT, *place, sealed, written_at)
        return 1

    def _required(self) -> asyncpg.Pool:
        assert self._pool is not None, "secrets are kept in the database"
        return self._pool


def about(grant_id: UUID, secret_id: UUID) -> str:
    """What a grant's sealed secret belongs to."""
    return f"grant {grant_id}/{secret_id}"
