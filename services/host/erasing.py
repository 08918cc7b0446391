"""Erases a person: the fact, the key, what was made of it, and a report of where they stand in clear."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg

from contracts import ids
from contracts.errors import Rejected
from libs.domain import identity as domain
from libs.eventstore.erasing import Place, Progress, Traces, drop_snapshots, trace
from libs.eventstore.people import FORGOTTEN_WITHIN
from libs.eventstore.rebuild import rebuild
from libs.eventstore.snapshots import read_states
from libs.faultpoints import faultpoint
from libs.postgres.pool import fetch
from libs.process import Tools
from services.api.identity import Identity
from services.api.identity import Place as Filed

NAME_CHARS_MIN: Final = 5
"""A shorter name is a part of too many words to be looked for in clear."""


@dataclass(frozen=True, slots=True)
class Found:
    """Who is to be erased. `texts` are what they are known by, as far as that can still be read."""

    user_id: UUID
    filed: Filed
    state: domain.State
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Erasure:
    """What was done, or would be: see `as_json` for what the numbers count."""

    user_id: UUID
    done: bool
    traces: Traces
    looked_for: int
    heads_rebuilt: int = 0
    snapshots_dropped: int = 0
    credentials_destroyed: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "user_id": str(self.user_id),
            "erased": self.done,
            "sealed_texts": dict(sorted(self.traces.sealed.items())),
            "sealed_blobs": self.traces.sealed_blobs,
            "head_rows_rebuilt": self.heads_rebuilt,
            "snapshots_dropped": self.snapshots_dropped,
            "credentials_destroyed": self.credentials_destroyed,
            "texts_looked_for": self.looked_for,
            "in_clear": [_place(place) for place in self.traces.clear],
        }


def _place(place: Place) -> dict[str, Any]:
    return {"table": place.table, "rows": place.rows, "runs": [str(run) for run in place.runs]}


async def find(tools: Tools, whom: str, *, group: str | None, also: Sequence[str] = ()) -> Found:
    """Find a user by id or e-mail: by the id that the e-mail gives, so also who is erased already.

    Raises:
        contracts.errors.Rejected: ``identity.not_found`` (404); ``identity.ambiguous`` (409) when several tenant groups
            have such a user.
    """
    groups = await fetch(
        tools.require_pool(),
        "select stream_id from identity_heads where kind = 'tenant_group' and ($1::text is null or name = $1)",
        group,
    )
    wanted = _id(whom)
    candidates = [wanted] if wanted else [ids.user(row["stream_id"], whom) for row in groups]
    states = await read_states(tools.store, domain.CATEGORY, candidates)
    users = [(i, *found) for i, found in states.items() if found[1].kind in domain.USERS]
    if group is not None:
        users = [each for each in users if each[1].tenant_group in {row["stream_id"] for row in groups}]
    if not users:
        raise Rejected("identity.not_found", f"there is no user {whom}", status=404)
    if len(users) > 1:
        raise Rejected(
            "identity.ambiguous", f"{len(users)} tenant groups have a user {whom}: name one with --group", status=409
        )
    [(user_id, loaded, state)] = users
    assert loaded.tenant_group is not None
    assert loaded.tenant is not None
    known = () if state.erased else (state.handle, state.name)
    texts = {*also, *known, *(() if wanted else (whom,))}
    return Found(
        user_id,
        Filed(loaded.tenant_group, loaded.tenant),
        state,
        tuple(sorted(text for text in texts if "@" in text or len(text) >= NAME_CHARS_MIN)),
    )


async def look(pool: asyncpg.Pool, found: Found, progress: Progress) -> Erasure:
    """Say what there is of a person, and change nothing."""
    traces = await trace(pool, found.filed.tenant_group, found.user_id, found.texts, progress)
    return Erasure(found.user_id, False, traces, len(found.texts))


async def erase(
    tools: Tools,
    pool: asyncpg.Pool,
    found: Found,
    *,
    reason: str,
    progress: Progress,
    forgotten_within: timedelta = FORGOTTEN_WITHIN,
) -> Erasure:
    """Erase a person for good. Killed anywhere, it is run again and goes on; done, it changes nothing more.

    `pool` may take its time: it looks through everything that the tenant group has.

    Raises:
        contracts.errors.Rejected: ``identity.active`` (409), they may still act.
    """
    person, group = found.user_id, found.filed.tenant_group
    await Identity(tools.store, tools.bus).erase_user(found.filed, person, reason=reason)
    faultpoint("erase.recorded")
    ago = await tools.store.mapper.people.destroy(person, group)
    faultpoint("erase.destroyed")
    if ago < forgotten_within:
        progress("the key is destroyed; waiting until no service holds it any more")
        await asyncio.sleep((forgotten_within - ago).total_seconds())
    before = await trace(pool, group, person, (), progress)
    progress(f"dropping what was made of {sum(before.sealed.values())} sealed texts")
    dropped = await drop_snapshots(pool, before.streams)
    credentials = await _destroy_credentials(pool, person)
    faultpoint("erase.dropped")
    rebuilt = await _rebuild(tools, pool, before.identities | {person})
    faultpoint("erase.rebuilt")
    traces = await trace(pool, group, person, found.texts, progress)
    return Erasure(person, True, traces, len(found.texts), rebuilt, dropped, credentials)


async def _destroy_credentials(pool: asyncpg.Pool, person: UUID) -> int:
    rows = await fetch(
        pool,
        "delete from grant_secrets"
        " where grant_id in (select stream_id from identity_heads where owner = $1) returning 1",
        person,
    )
    return len(rows)


async def _rebuild(tools: Tools, pool: asyncpg.Pool, stream_ids: Collection[UUID]) -> int:
    """Make the head rows of a person, their keys and all that names them among identities anew."""
    category = {domain.CATEGORY.name: domain.CATEGORY}
    rebuilt = await rebuild(pool, category, stream_ids=stream_ids, mapper=tools.store.mapper)
    return rebuilt.streams


def _id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
