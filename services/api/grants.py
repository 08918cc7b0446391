"""Grants over the door: the secret goes into the vault first, then the fact says that it was given."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg

from contracts import ids
from contracts.base import Principal
from contracts.errors import Rejected
from contracts.events.definition import ServerSynced
from libs.domain import definition
from libs.domain import identity as domain
from libs.domain.access import is_administrator
from libs.domain.grants import GiveGrant, Grant, RevokeGrant, require_may_manage
from libs.eventstore.port import EventStore, Loaded, Recorded
from libs.ids import mint
from libs.postgres.pool import fetch
from libs.vault import Vault
from minutebook.models import ActorView, GiveGrantRequest, GrantView, Page
from services.api import cursors
from services.api.identity import Identity, Place
from services.api.reads import Reads, fold
from services.api.where import Where

_CATEGORY: Final = domain.CATEGORY.name


class Grants:
    """What users gave to be written with in their name. One sees one's own, and an administrator everybody's."""

    def __init__(self, store: EventStore, pool: asyncpg.Pool, identity: Identity, vault: Vault) -> None:
        self._store = store
        self._reads = Reads(store)
        self._pool = pool
        self._identity = identity
        self._vault = vault

    async def page(self, caller: Principal, *, limit: int, cursor: str | None) -> Page[GrantView]:
        """Grants that the caller sees, in order of their server."""
        where = Where()
        where.add("i.tenant_group = {}", caller.tenant_group)
        where.conditions.append("i.kind = 'grant'")
        if not is_administrator(caller):
            where.add("i.owner = {}", caller.id)
        if cursor is not None:
            where.add("(i.name, i.stream_id) > ({}, {})", *cursors.decode(cursor, cursors.name, UUID))
        rows = await fetch(
            self._pool,
            "select i.stream_id, i.name, i.owner from identity_heads i"  # noqa: S608  our own texts
            f" where {where} order by i.name, i.stream_id limit {where.place(limit + 1)}",
            *where.arguments,
        )
        page = rows[:limit]
        wanted = {row["stream_id"] for row in page} | {row["owner"] for row in page}
        found = await self._reads.histories(_CATEGORY, caller.tenant_group, wanted)
        now = await self._store.now()
        return Page(
            items=tuple(
                _view(row["stream_id"], _grant(found[row["stream_id"]]), _email(found.get(row["owner"], ())), now)
                for row in page
            ),
            next_cursor=cursors.encode(page[-1]["name"], page[-1]["stream_id"]) if len(rows) > limit else None,
        )

    async def give(self, caller: Principal, request: GiveGrantRequest, *, command_id: UUID | None) -> GrantView:
        """Keep a credential and record that it was given, in the place of the one before.

        Raises:
            contracts.errors.Rejected: 403 for whom it is not the caller's to give; 404 an unknown user or server;
                409 a user who was deactivated; 422 a server that takes no grants, or an end that has passed.
            contracts.errors.Unavailable: the installation has no sealing key.
        """
        user_id, user = await self._user(caller, request.user)
        # Judged before anything is written, and once more with the fact.
        require_may_manage(caller, user_id, user.kind or "")
        await self._require_server(caller, request.server)
        if not user.active:
            raise Rejected("grant.user_inactive", f"{user.email} was deactivated", status=409)
        grant_id = ids.grant(caller.tenant_group, user_id, request.server)
        secret_id = ids.derive("grant_secret", grant_id, command_id or mint())
        await self._vault.keep(caller.tenant_group, grant_id, secret_id, request.token.get_secret_value())
        command = GiveGrant(
            principal=caller,
            user_id=user_id,
            user_kind="service_user" if user.kind == "service_user" else "user",
            server_id=request.server,
            secret_id=secret_id,
            expires_at=request.expires_at,
        )
        await self._identity.do(Place(caller.tenant_group, caller.tenant), grant_id, command, caller.actor)
        return await self._tidied(caller, grant_id, user.email or user.handle)

    async def revoke(self, caller: Principal, grant_id: UUID) -> GrantView:
        """End a grant: no write that begins from now on is made with it, and its credential is deleted.

        Whoever gives a grant may revoke it, and administrators may revoke any.

        Raises:
            contracts.errors.Rejected: 404, there is none, or it is somebody else's.
        """
        found = await self._reads.histories(_CATEGORY, caller.tenant_group, [grant_id])
        state = fold(domain.CATEGORY, found.get(grant_id, ()))
        if state.grant is None or not (is_administrator(caller) or state.grant.user_id == caller.id):
            raise Rejected("grant.not_found", f"there is no grant {grant_id}", status=404)
        users = await self._reads.histories(_CATEGORY, caller.tenant_group, [state.grant.user_id])
        await self._end(caller, grant_id)
        return await self._tidied(caller, grant_id, _email(users.get(state.grant.user_id, ())))

    async def end_all(self, caller: Principal, user_id: UUID) -> None:
        """Revoke every grant of a user who left."""
        rows = await fetch(
            self._pool,
            "select stream_id from identity_heads"
            " where tenant_group = $1 and kind = 'grant' and owner = $2 and state = 'active'",
            caller.tenant_group,
            user_id,
        )
        for row in rows:
            await self._end(caller, row["stream_id"])
            await self._tidied(caller, row["stream_id"], "")

    async def _end(self, caller: Principal, grant_id: UUID) -> None:
        place = Place(caller.tenant_group, caller.tenant)
        await self._identity.do(place, grant_id, RevokeGrant(by=caller.actor), caller.actor)

    async def _tidied(self, caller: Principal, grant_id: UUID, email: str) -> GrantView:
        """The grant as it is now. Every credential that it had before is deleted: the history says which those are."""
        load = await self._store.load(_CATEGORY, {grant_id: 0})
        history = load.streams[grant_id].events
        grant = _grant(history)
        current = None if grant.revoked else grant.secret_id
        await self._vault.forget(grant_id, grant.given - {current}, current=current)
        return _view(grant_id, grant, email, load.now)

    async def _user(self, caller: Principal, ref: str | None) -> tuple[UUID, domain.State]:
        """Whom an email or an id names in the caller's tenant group; without either the caller."""
        user_id = caller.id if ref is None else _id(ref) or ids.user(caller.tenant_group, ref)
        found = await self._reads.histories(_CATEGORY, caller.tenant_group, [user_id])
        state = fold(domain.CATEGORY, found.get(user_id, ()))
        if state.kind in {"user", "service_user"}:
            return user_id, state
        if ref is None:
            raise Rejected("grant.no_user", "an API key is nobody's: name the service user that it is for")
        raise Rejected("user.not_found", f"there is no user {ref!r}", status=404)

    async def _require_server(self, caller: Principal, server_id: str) -> None:
        stream_id = ids.server(caller.tenant_group, server_id)
        loaded: Loaded = (await self._store.load(definition.CATEGORY.name, {stream_id: 0})).streams[stream_id]
        current = fold(definition.CATEGORY, loaded.events).current
        if not isinstance(current, ServerSynced):
            raise Rejected("server.not_found", f"no MCP server {server_id!r} is declared", status=404)
        if current.grants == "none" or (current.transport == "stdio" and current.grant_env is None):
            raise Rejected("grant.not_taken", f"the MCP server {server_id!r} is written to with its own secrets alone")


def _id(ref: str) -> UUID | None:
    try:
        return UUID(ref)
    except ValueError:
        return None


def _grant(history: Iterable[Recorded]) -> Grant:
    grant = fold(domain.CATEGORY, history).grant
    assert grant is not None, "the head row says that it is a grant"
    return grant


def _email(history: Iterable[Recorded]) -> str:
    user = fold(domain.CATEGORY, history)
    return user.email or user.handle


def _view(grant_id: UUID, grant: Grant, email: str, now: datetime) -> GrantView:
    return GrantView(
        grant_id=grant_id,
        user_id=grant.user_id,
        user=email,
        server=grant.server_id,
        state="revoked" if grant.revoked else "expired" if grant.expired(now) else "active",
        given_at=grant.given_at,
        given_by=ActorView.model_validate(grant.given_by.model_dump()),
        expires_at=grant.expires_at,
    )
