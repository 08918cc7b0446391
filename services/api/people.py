"""Users of a tenant group, for its administrators: who there is, who comes, who goes, and what was changed by whom."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg
from pydantic import TypeAdapter

from contracts import ids
from contracts.base import JsonObject, Principal
from contracts.errors import Rejected
from libs.domain import identity as domain
from libs.eventstore.port import EventStore, Recorded
from libs.postgres.pool import fetch
from minutebook.models import ActorView, Page, PersonalFact, RegisterUserRequest, UserView
from services.api import cursors
from services.api.grants import Grants
from services.api.identity import Identity, Place
from services.api.reads import Reads, fold
from services.api.where import Where
from services.api.words import describe

USERS: Final = ("user", "service_user")

_STATE: Final = TypeAdapter(domain.State)


class People:
    """The caller has been judged to be an administrator before."""

    def __init__(self, store: EventStore, pool: asyncpg.Pool, identity: Identity, grants: Grants) -> None:
        self._reads = Reads(store)
        self._pool = pool
        self._identity = identity
        self._grants = grants

    async def page(self, caller: Principal, *, limit: int, cursor: str | None) -> Page[UserView]:
        """Users of the tenant group, in order of their email."""
        where = Where()
        where.add("i.tenant_group = {}", caller.tenant_group)
        where.add("i.kind = any({})", list(USERS))
        if cursor is not None:
            where.add("(i.name, i.stream_id) > ({}, {})", *cursors.decode(cursor, cursors.name, UUID))
        rows = await fetch(
            self._pool,
            "select i.stream_id, i.name from identity_heads i"  # noqa: S608  our own texts
            f" where {where} order by i.name, i.stream_id limit {where.place(limit + 1)}",
            *where.arguments,
        )
        page = rows[:limit]
        found = await self._reads.histories("identity", caller.tenant_group, [row["stream_id"] for row in page])
        return Page(
            items=tuple(view(row["stream_id"], fold(domain.CATEGORY, found[row["stream_id"]])) for row in page),
            next_cursor=cursors.encode(page[-1]["name"], page[-1]["stream_id"]) if len(rows) > limit else None,
        )

    async def register(self, caller: Principal, request: RegisterUserRequest) -> UserView:
        """Register a user, in the caller's tenant.

        Raises:
            contracts.errors.Rejected: 409, the email is registered otherwise, or was deactivated.
        """
        place = _place(caller)
        for project in request.projects:
            if not await self._reads.histories("identity", caller.tenant_group, [_project(caller, project)]):
                await self._identity.project(place, project, by=caller.actor)
        user_id = await self._identity.register_user(
            place,
            request.email,
            name=request.name,
            kind=request.kind,
            roles=request.roles,
            groups=request.groups,
            projects=request.projects,
            by=caller.actor,
        )
        return view(user_id, fold(domain.CATEGORY, await self._user(caller, user_id)))

    async def deactivate(self, caller: Principal, user_id: UUID) -> UserView:
        """End a user for good: their tokens, their decisions, writes of their runs, and their grants.

        Raises:
            contracts.errors.Rejected: 404; 409 for the caller's own user.
        """
        await self._user(caller, user_id)
        if user_id == caller.id:
            raise Rejected("user.self", "nobody deactivates themself; another administrator can", status=409)
        place = _place(caller)
        # The user first: from then on no grant of theirs is used, whatever becomes of what follows.
        state = await self._identity.do(place, user_id, domain.DeactivateUser(), caller.actor)
        await self._grants.end_all(caller, user_id)
        return view(user_id, state)

    async def facts(self, caller: Principal, user_id: UUID, *, limit: int, cursor: str | None) -> Page[PersonalFact]:
        """What was changed of a user, by whom, oldest first.

        Raises:
            contracts.errors.Rejected: 404.
        """
        after = cursors.decode(cursor, cursors.count)[0] if cursor is not None else 0
        later = [fact for fact in _facts(await self._user(caller, user_id)) if fact.version > after]
        page = later[:limit]
        return Page(items=tuple(page), next_cursor=cursors.encode(page[-1].version) if len(later) > len(page) else None)

    async def _user(self, caller: Principal, user_id: UUID) -> Sequence[Recorded]:
        found = await self._reads.histories("identity", caller.tenant_group, [user_id])
        history = found.get(user_id, ())
        if fold(domain.CATEGORY, history).kind not in USERS:
            raise Rejected("user.not_found", f"there is no user {user_id}", status=404)
        return history


def view(user_id: UUID, state: domain.State) -> UserView:
    """A user as the API shows it."""
    assert state.kind in {"user", "service_user"}, "only users are shown so"
    return UserView(
        user_id=user_id,
        email=state.email or state.handle,
        name=state.name,
        kind="service_user" if state.kind == "service_user" else "user",
        state="active" if state.active else "inactive",
        roles=tuple(sorted(state.roles)),
        groups=tuple(sorted(state.groups)),
        projects=tuple(sorted(state.projects)),
    )


def _facts(history: Sequence[Recorded]) -> list[PersonalFact]:
    """Each fact with what it changed: the state before and after it, as it was folded."""
    shown: list[PersonalFact] = []
    state = domain.CATEGORY.initial
    for fact in history:
        before, state = state, domain.evolve(state, fact.event)
        shown.append(
            PersonalFact(
                version=fact.version,
                type=fact.type,
                at=fact.event.at,
                actor=ActorView.model_validate(fact.metadata.actor.model_dump()),
                text=describe(fact.event, birth=history[0].event, actor=fact.metadata.actor),
                before=_plain(before) if before.kind is not None else None,
                after=_plain(state),
                digest=fact.digest.hex(),
            )
        )
    return shown


def _plain(state: domain.State) -> JsonObject:
    """A state as JSON, without what a user has none of."""
    dumped: dict[str, Any] = _STATE.dump_python(state, mode="json")
    kept = {key: sorted(value) if isinstance(value, list) else value for key, value in dumped.items()}
    return {key: value for key, value in kept.items() if value is not None}


def _place(caller: Principal) -> Place:
    return Place(caller.tenant_group, caller.tenant)


def _project(caller: Principal, key: str) -> UUID:
    return ids.project(caller.tenant_group, key)
