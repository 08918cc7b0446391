"""A pool that leaves some of its connections out between single statements."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

T = TypeVar("T")

IDLE_SECONDS_MAX: Final = 300.0
"""After which a connection that nobody takes is closed."""


class KeepingPool(asyncpg.Pool):  # type: ignore[misc]  # the driver has no types
    """Taking a connection and giving it back costs twice what a statement costs, so up to `kept_max` stay taken.

    They are for `fetch`, `fetchrow` and `execute`; a transaction acquires one of the others. One that was closed
    meanwhile is found out before it is used, as by any pool.
    """

    def __init__(self, dsn: str, *, kept_max: int, **settings: Any) -> None:
        super().__init__(
            dsn,
            connection_class=asyncpg.Connection,
            record_class=asyncpg.Record,
            max_inactive_connection_lifetime=IDLE_SECONDS_MAX,
            loop=None,
            **settings,
        )
        self._kept: list[PoolConnectionProxy] = []
        self._kept_max = kept_max

    async def fetch(self, query: str, *args: Any, **options: Any) -> list[asyncpg.Record]:
        return await self._with_one(lambda one: one.fetch(query, *args, **options))

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> asyncpg.Record | None:
        return await self._with_one(lambda one: one.fetchrow(query, *args, **options))

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        return await self._with_one(lambda one: one.execute(query, *args, **options))

    async def close(self) -> None:
        """Close every connection, once what is under way on it is done."""
        self._kept_max = 0
        while self._kept:
            await self.release(self._kept.pop())
        await super().close()

    async def _with_one(self, do: Callable[[PoolConnectionProxy], Awaitable[T]]) -> T:
        one = self._take() or await self.acquire()
        try:
            result = await do(one)
        except BaseException:
            await self.release(one)  # which looks at what state it is in
            raise
        if len(self._kept) < self._kept_max:
            self._kept.append(one)
        else:
            await self.release(one)
        return result

    def _take(self) -> PoolConnectionProxy | None:
        while self._kept:
            one = self._kept.pop()
            try:
                if not one.is_closed():
                    return one
            except asyncpg.InterfaceError:  # it was closed, and so it went back by itself
                continue
        return None
