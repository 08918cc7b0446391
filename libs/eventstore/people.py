"""The keys of persons: made when a person is first named, found when their facts are read, destroyed to erase them."""

import hashlib
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Protocol
from uuid import UUID

import asyncpg

from contracts.errors import Broken, Unavailable
from libs.clock import monotonic
from libs.eventstore.keyring import KEY_BYTES, MARK, Keyring, persons_in
from libs.postgres.pool import execute, fetch
from libs.sealing import Sealing

FORGOTTEN_WITHIN: Final = timedelta(seconds=10)
"""How long after its destruction a process may still use a key: it asks that often which were destroyed."""

_OVERLAP: Final = timedelta(minutes=5)
"""A destruction is dated by its statement's beginning, and seen after its end."""

_MARK: Final = MARK.encode()
_OPEN: Final = b"\x00"
"""How a key begins that lies there unsealed. What is sealed begins otherwise."""

_PAGE_ROWS: Final = 200
_PAGE: Final = """
select subject, sealed from subject_keys where sealed is not null and subject > $1 order by subject limit $2"""


class People(Protocol):
    """The keys of persons, as a store needs them. Sealing and opening itself is the ring's."""

    ring: Keyring

    async def know(self, wanted: Mapping[UUID, UUID]) -> None:
        """Have the keys of persons (person → tenant group) in the ring; one is made for whom there is none."""
        ...

    async def recall(self, rows: Iterable[Mapping[str, Any]], *, connection: Any = None) -> None:
        """Have the keys of everybody whose tokens stand in rows of the history in the ring, as far as there are any.

        It asks over `connection`, where the caller holds one.
        """
        ...

    async def reseal(self) -> int:
        """Seal under the sealing key of now what another one sealed, and return how many keys that were."""
        ...

    async def destroy(self, person: UUID, tenant_group: UUID) -> timedelta:
        """Destroy a person's key for good, also before it was ever made. Returns how long ago that was done.

        Other processes may use it for `FORGOTTEN_WITHIN` of that.
        """
        ...


class Nobody:
    """No keys: personal texts are written and read as they are. For what maps events without a store."""

    def __init__(self) -> None:
        self.ring = Keyring()

    async def know(self, wanted: Mapping[UUID, UUID]) -> None:
        raise Broken("people.nobody", "events are to be stored, and there is nowhere to keep the keys of persons")

    async def recall(self, rows: Iterable[Mapping[str, Any]], *, connection: Any = None) -> None:
        return

    async def reseal(self) -> int:
        return 0

    async def destroy(self, person: UUID, tenant_group: UUID) -> timedelta:
        raise Broken("people.nobody", "there are no keys of persons here")


class MemoryPeople:
    """Keys in memory, the same in every process: what a simulation of one seed writes is always the same."""

    def __init__(self, destroyed: Callable[[], None]) -> None:
        self.ring = Keyring()
        self._destroyed = destroyed

    async def know(self, wanted: Mapping[UUID, UUID]) -> None:
        for person in wanted:
            if not self.ring.knows(person.hex):
                self.ring.learn(person.hex, hashlib.sha512(person.bytes).digest())

    async def recall(self, rows: Iterable[Mapping[str, Any]], *, connection: Any = None) -> None:
        return

    async def reseal(self) -> int:
        return 0

    async def destroy(self, person: UUID, tenant_group: UUID) -> timedelta:
        await self.know({person: tenant_group})
        before = self.ring.erasures
        self.ring.learn(person.hex, None)
        if self.ring.erasures != before:
            self._destroyed()
        return timedelta(0)


class PostgresPeople:
    """Keys in the table `subject_keys`, sealed under the installation's key where `sealing` is given.

    Without it they lie there as they are, which is for databases that nobody keeps: destroying one erases as well, but
    whoever reads the table reads the record.
    """

    def __init__(
        self, pool: asyncpg.Pool, sealing: Sealing | None = None, *, forgotten_within: timedelta = FORGOTTEN_WITHIN
    ) -> None:
        self.ring = Keyring()
        self._forgotten_within = forgotten_within
        self._pool = pool
        self._sealing = sealing
        self._looked = 0.0
        self._since: datetime | None = None

    async def know(self, wanted: Mapping[UUID, UUID]) -> None:
        new = sorted(person for person in wanted if not self.ring.knows(person.hex))
        if new:
            await execute(
                self._pool,
                "insert into subject_keys(subject, tenant_group, sealed)"
                " select * from unnest($1::uuid[], $2::uuid[], $3::bytea[]) on conflict (subject) do nothing",
                new,
                [wanted[person] for person in new],
                [self._sealed(person, secrets.token_bytes(KEY_BYTES)) for person in new],
            )
            await self._find(new, self._pool)  # another process may have been first
        await self._look(self._pool)

    async def recall(self, rows: Iterable[Mapping[str, Any]], *, connection: Any = None) -> None:
        named = {digits for row in rows for digits in _named(row) if not self.ring.knows(digits)}
        if named:
            await self._find([UUID(digits) for digits in named], connection or self._pool)
        await self._look(connection or self._pool)

    async def reseal(self) -> int:
        if self._sealing is None:
            return 0
        after, count = UUID(int=0), 0
        while rows := await fetch(self._pool, _PAGE, after, _PAGE_ROWS):
            after = rows[-1]["subject"]
            for row in rows:
                if not self._sealing.current(row["sealed"]):
                    key = self._opened(row["subject"], row["sealed"])
                    assert key is not None, "only keys that are there are asked for"
                    await self._seal_anew(row["subject"], row["sealed"], key, self._pool)
                    count += 1
        return count

    async def destroy(self, person: UUID, tenant_group: UUID) -> timedelta:
        rows = await fetch(
            self._pool,
            "insert into subject_keys as k (subject, tenant_group, sealed, destroyed_at)"
            " values ($1, $2, null, minutebook_now()) on conflict (subject) do update"
            " set sealed = null, destroyed_at = coalesce(k.destroyed_at, excluded.destroyed_at)"
            " returning minutebook_now() - k.destroyed_at as ago",
            person,
            tenant_group,
        )
        self.ring.learn(person.hex, None)
        ago: timedelta = rows[0]["ago"]
        return ago

    async def _find(self, persons: Collection[UUID], asked: Any) -> None:
        rows = await fetch(
            asked, "select subject, sealed from subject_keys where subject = any($1::uuid[])", list(persons)
        )
        for row in rows:
            key = self._opened(row["subject"], row["sealed"])
            self.ring.learn(row["subject"].hex, key)

    async def _look(self, asked: Any) -> None:
        """Learn which keys were destroyed, when that was not asked for a while."""
        now = monotonic()
        if not len(self.ring) or now - self._looked < self._forgotten_within.total_seconds():
            return
        before, self._looked = self._looked, now
        try:
            rows = await fetch(
                asked,
                "select minutebook_now() as now, k.subject from (select 1) one left join subject_keys k"
                " on k.sealed is null and ($1::timestamptz is null or k.destroyed_at >= $1)",
                None if self._since is None else self._since - _OVERLAP,
            )
        except BaseException:
            self._looked = before
            raise
        self._since = rows[0]["now"]
        for row in rows:
            if row["subject"] is not None and self.ring.knows(row["subject"].hex):
                self.ring.learn(row["subject"].hex, None)

    async def _seal_anew(self, person: UUID, sealed: bytes, key: bytes, asked: Any) -> None:
        """Seal a key under the sealing key of now, unless it was destroyed meanwhile: the previous one may then go."""
        await fetch(
            asked,
            "update subject_keys set sealed = $3 where subject = $1 and sealed = $2",
            person,
            sealed,
            self._sealed(person, key),
        )

    def _sealed(self, person: UUID, key: bytes) -> bytes:
        return _OPEN + key if self._sealing is None else self._sealing.seal(key, about=_about(person))

    def _opened(self, person: UUID, sealed: bytes | None) -> bytes | None:
        if sealed is None:
            return None
        if sealed.startswith(_OPEN):
            return sealed.removeprefix(_OPEN)
        if self._sealing is None:
            raise Unavailable(
                "sealing.key_missing",
                "the keys of persons are sealed under the installation's key, which was not given here",
            )
        return self._sealing.open(sealed, about=_about(person))


def _about(person: UUID) -> str:
    return f"person {person}"


def _named(row: Mapping[str, Any]) -> Iterable[str]:
    """The persons whose tokens stand in a row, as far as it has these columns."""
    for name in ("payload", "metadata"):
        text = row.get(name)
        if text is not None and MARK in text:
            yield from persons_in(text)
    content = row.get("content")
    if content is not None and _MARK in content:
        yield from persons_in(content.decode())
