"""Delegations over the door: who lets whom decide in their place. One sees one's own, an administrator everybody's."""

from datetime import datetime
from typing import Final, Literal
from uuid import UUID

import asyncpg

from contracts import ids
from contracts.base import Principal
from contracts.errors import Rejected
from contracts.events.run import UserRef
from libs.domain import identity as domain
from libs.domain.access import is_administrator
from libs.domain.delegations import Delegate, Delegation, EndDelegation
from libs.eventstore.port import EventStore
from libs.ids import mint
from libs.postgres.pool import fetch
from minutebook.models import ActorView, DelegateRequest, DelegationView, Page, Person
from services.api import cursors
from services.api.identity import Identity, Place
from services.api.reads import Reads, fold
from services.api.where import Where

_CATEGORY: Final = domain.CATEGORY.name


class Delegations:
    """Between people of one tenant group."""

    def __init__(self, store: EventStore, pool: asyncpg.Pool, identity: Identity) -> None:
        self._store = store
        self._reads = Reads(store)
        self._pool = pool
        self._identity = identity

    async def page(self, caller: Principal, *, limit: int, cursor: str | None) -> Page[DelegationView]:
        """Delegations from and to the caller, and for an administrator everybody's."""
        where = Where()
        where.add("i.tenant_group = {}", caller.tenant_group)
        where.conditions.append("i.kind = 'delegation'")
        if not is_administrator(caller):
            where.add("(i.owner = {} or i.name = {})", caller.id, str(caller.id))
        if cursor is not None:
            where.add("i.stream_id > {}", *cursors.decode(cursor, UUID))
        rows = await fetch(
            self._pool,
            "select i.stream_id from identity_heads i"  # noqa: S608  our own texts
            f" where {where} order by i.stream_id limit {where.place(limit + 1)}",
            *where.arguments,
        )
        page = [row["stream_id"] for row in rows[:limit]]
        found = await self._reads.histories(_CATEGORY, caller.tenant_group, page)
        now = await self._store.now()
        return Page(
            items=tuple(_view(i, _delegation(fold(domain.CATEGORY, found[i])), now) for i in page),
            next_cursor=cursors.encode(page[-1]) if len(rows) > limit else None,
        )

    async def give(self, caller: Principal, request: DelegateRequest, *, command_id: UUID | None) -> DelegationView:
        """Let a person decide in the place of the caller, or for an administrator in anybody's.

        Raises:
            contracts.errors.Rejected: 403 in another one's place; 404 for somebody who is no active person; 422.
        """
        from_user = await self.user(caller, request.from_user or str(caller.id))
        to_user = await self.user(caller, request.to_user)
        now = await self._store.now()
        delegation_id = ids.derive("delegation", command_id or mint())
        command = Delegate(
            principal=caller,
            from_user=from_user,
            to_user=to_user,
            starts_at=request.starts_at or now,
            ends_at=request.ends_at,
            roles=frozenset(request.roles),
        )
        state = await self._identity.do(_place(caller), delegation_id, command, caller.actor)
        return _view(delegation_id, _delegation(state), now)

    async def end(self, caller: Principal, delegation_id: UUID) -> DelegationView:
        """End a delegation.

        Raises:
            contracts.errors.Rejected: 404, there is none that is the caller's to end.
        """
        histories = await self._reads.histories(_CATEGORY, caller.tenant_group, [delegation_id])
        if delegation_id not in histories:
            raise Rejected("delegation.not_found", "there is no such delegation", status=404)
        state = await self._identity.do(_place(caller), delegation_id, EndDelegation(principal=caller), caller.actor)
        return _view(delegation_id, _delegation(state), await self._store.now())

    async def user(self, caller: Principal, named: str, *, active: bool = True) -> UserRef:
        """A person of the tenant group, by email or id; with `active` one who was not deactivated.

        Raises:
            contracts.errors.Rejected: 404.
        """
        try:
            user_id = UUID(named)
        except ValueError:
            user_id = ids.user(caller.tenant_group, named)
        found = await self._reads.histories(_CATEGORY, caller.tenant_group, [user_id])
        state = fold(domain.CATEGORY, found.get(user_id, ()))
        if state.kind != "user" or state.email is None or (active and not state.active):
            raise Rejected("user.not_found", f"there is no {'active ' if active else ''}person {named}", status=404)
        return UserRef(id=user_id, email=state.email)


def _place(caller: Principal) -> Place:
    return Place(caller.tenant_group, caller.tenant)


def _delegation(state: domain.State) -> Delegation:
    if state.delegation is None:
        raise Rejected("delegation.not_found", "there is no such delegation", status=404)
    return state.delegation


def _view(delegation_id: UUID, its: Delegation, now: datetime) -> DelegationView:
    return DelegationView(
        delegation_id=delegation_id,
        from_user=Person(id=its.from_user.id, email=its.from_user.email),
        to_user=Person(id=its.to_user.id, email=its.to_user.email),
        starts_at=its.starts_at,
        ends_at=its.ends_at,
        roles=tuple(sorted(its.roles)),
        state=_state(its, now),
        by=ActorView.model_validate(its.by.model_dump()),
    )


def _state(its: Delegation, now: datetime) -> Literal["coming", "in_force", "over", "ended"]:
    if its.ended:
        return "ended"
    if now < its.starts_at:
        return "coming"
    return "in_force" if its.in_force(now) else "over"
