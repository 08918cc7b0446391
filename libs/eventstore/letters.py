"""Dead letters: what a service could not do with a message, kept until somebody has it done or drops it. No facts."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

import asyncpg

from libs.eventstore.adapter import Adapter

# The tenant group is that of the stream: messages do not carry it.
_KEEP: Final = """
insert into dead_letters as l (id, tenant_group, service, durable, subject, stream_id, code, message, letter, tries)
select i.id, (select e.tenant_group from workflow_history e where e.stream_id = i.stream_id and e.version = 1),
       i.service, i.durable, i.subject, i.stream_id, i.code, i.message, i.letter::json, i.tries
  from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::text[], $9::int[])
    as i(id, service, durable, subject, stream_id, code, message, letter, tries)
 order by i.id
on conflict (id) do update set code = excluded.code, message = excluded.message, tries = l.tries + excluded.tries,
  last_at = minutebook_now()"""

_READ: Final = """
select id, tenant_group, service, durable, subject, stream_id, code, message, letter::text as letter, tries, first_at,
       last_at
  from dead_letters
 where ($1::uuid is null or tenant_group = $1) and ($2::uuid[] is null or id = any($2))
   and ($3::timestamptz is null or (last_at, id) < ($3, $4::uuid))
 order by last_at desc, id desc limit $5"""


@dataclass(frozen=True, slots=True)
class NewLetter:
    """A message, or a part of one, that is given up on after `tries`. `data` is what would have it done."""

    id: UUID
    service: str
    durable: str
    subject: str
    stream_id: UUID | None
    code: str
    message: str
    data: bytes
    tries: int


@dataclass(frozen=True, slots=True)
class DeadLetter(NewLetter):
    """A letter as it is kept. Without a tenant group it is of no stream: nobody could read the message."""

    tenant_group: UUID | None
    first_at: datetime
    last_at: datetime


class DeadLetters(Protocol):
    """Where letters are kept."""

    async def keep(self, letters: Sequence[NewLetter]) -> None:
        """Keep letters; one that is there already is the same one again, with more tries.

        Raises:
            contracts.errors.Unavailable: the database does not answer; nothing is known about them.
        """
        ...


class PostgresLetters(Adapter):
    """Dead letters on PostgreSQL."""

    async def keep(self, letters: Sequence[NewLetter]) -> None:
        """See `DeadLetters.keep`."""
        await self._execute(
            _KEEP,
            [letter.id for letter in letters],
            [letter.service for letter in letters],
            [letter.durable for letter in letters],
            [letter.subject for letter in letters],
            [letter.stream_id for letter in letters],
            [letter.code for letter in letters],
            [letter.message.replace("\x00", "") for letter in letters],
            [_written(letter.data) for letter in letters],
            [letter.tries for letter in letters],
        )

    async def read(
        self,
        *,
        tenant_group: UUID | None = None,
        ids: Collection[UUID] | None = None,
        after: tuple[datetime, UUID] | None = None,
        limit: int,
    ) -> list[DeadLetter]:
        """Letters, the one that failed last first: of a tenant group or of all, those named or all, from a key on."""
        last_at, id_ = after or (None, None)
        rows = await self._fetch(_READ, tenant_group, None if ids is None else list(ids), last_at, id_, limit)
        return [_letter(row) for row in rows]

    async def drop(self, letters: Sequence[DeadLetter]) -> None:
        """Forget letters whose messages were sent again, unless one has failed again since it was read."""
        await self._execute(
            "delete from dead_letters l using unnest($1::uuid[], $2::timestamptz[]) as d(id, last_at)"
            " where l.id = d.id and l.last_at = d.last_at",
            [letter.id for letter in letters],
            [letter.last_at for letter in letters],
        )


def _letter(row: asyncpg.Record) -> DeadLetter:
    values = dict(row)
    letter = json.loads(values.pop("letter"))
    data = letter["text"].encode() if "text" in letter else bytes.fromhex(letter["hex"])
    return DeadLetter(data=data, **values)


def _written(data: bytes) -> str:
    """A message as JSON: its text where it is some, so that people can read it."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return json.dumps({"hex": data.hex()})
    return json.dumps({"hex": data.hex()} if "\x00" in text else {"text": text})
