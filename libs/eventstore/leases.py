"""Ends every lease, for who knows that nobody holds one: the single owner of an installation at its start."""

import asyncpg

from libs.postgres.pool import transaction


async def end_all_leases(pool: asyncpg.Pool) -> None:
    """Let what the last run of this installation held be taken over at once, instead of when its leases end.

    Safe only while no service runs. Needs an owner's rights.

    Raises:
        contracts.errors.Unavailable: the database does not answer.
    """
    async with transaction(pool) as connection:
        await connection.execute(
            "update attempt_heads set lease_until = minutebook_now(), wake_at = minutebook_now()"
            " where claim is not null and lease_until > minutebook_now()"
        )
        await connection.execute("delete from leases")
