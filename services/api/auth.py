"""Who asks: from a token to the principal that deciders judge."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final
from uuid import UUID

from contracts import ids
from contracts.base import ActsFor, Principal
from contracts.errors import Rejected
from libs.domain import identity
from libs.eventstore.port import Loaded, Recorded, Store
from services.api.identity import sha256_of

CACHED_SECONDS_MAX: Final = 2.0
"""How long a revoked, ended or deactivated token may still count. The promise is 5 s."""

PRINCIPALS_CACHED_MAX: Final = 10_000
TOKEN_CHARS_MAX: Final = 512


@dataclass(frozen=True, slots=True)
class _Cached:
    principal: Principal
    until: float


class Authenticator:
    """Resolves tokens against the identity streams. Secrets are hashed at once and never kept or logged."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: OrderedDict[str, _Cached] = OrderedDict()
        self._resolving: dict[str, asyncio.Task[Principal | None]] = {}

    async def authenticate(self, headers: Mapping[str, str]) -> Principal:
        """Return the caller that `Authorization: Bearer <token>` or `x-api-key: <token>` names.

        Raises:
            contracts.errors.Rejected: 401, the same for every reason, so that nothing can be learned from it.
            contracts.errors.Unavailable: the database did not answer.
        """
        token = _token(headers)
        if token is None:
            raise Rejected(
                "auth.missing",
                "send a personal access token or an API key as `Authorization: Bearer <token>` or `x-api-key: <token>`",
                status=401,
            )
        digest = sha256_of(token)
        cached = self._cache.get(digest)
        if cached is not None and time.monotonic() < cached.until:
            return cached.principal
        principal = await self._looked_up(digest)
        if principal is None:
            raise Rejected("auth.refused", "the token is unknown, was revoked or has ended; use another", status=401)
        return principal

    async def _looked_up(self, digest: str) -> Principal | None:
        """Look a token up once for all who send it at this moment. One of them who leaves does not end it."""
        looking = self._resolving.get(digest)
        if looking is None:
            looking = self._resolving[digest] = asyncio.create_task(self._look_up(digest), name="looking a token up")
            looking.add_done_callback(partial(self._found, digest))
        return await asyncio.shield(looking)

    def _found(self, digest: str, looked: "asyncio.Task[Principal | None]") -> None:
        del self._resolving[digest]
        if not looked.cancelled():
            looked.exception()  # told to those who wait, of whom there may be none any more

    async def _look_up(self, digest: str) -> Principal | None:
        # The age counts from before the read: what is revoked while it runs must not be held any longer for it.
        began = time.monotonic()
        principal = await self._resolve(digest)
        if principal is None:
            self._cache.pop(digest, None)
            return None
        self._cache[digest] = _Cached(principal, began + CACHED_SECONDS_MAX)
        self._cache.move_to_end(digest)
        while len(self._cache) > PRINCIPALS_CACHED_MAX:
            self._cache.popitem(last=False)
        return principal

    async def _resolve(self, digest: str) -> Principal | None:
        key_id = ids.key(digest)
        loaded, now = await self._load(key_id)
        key = _fold(loaded)
        if not key.active or loaded.tenant_group is None or loaded.tenant is None or _ended(key, now):
            return None
        if key.kind == "api_key":
            return Principal(
                kind="api_key",
                id=key_id,
                name=key.name,
                tenant_group=loaded.tenant_group,
                tenant=loaded.tenant,
                roles=key.roles,
                projects=key.projects,
                scopes=key.scopes,
            )
        if key.kind != "personal_access_token" or key.user_id is None:
            return None
        return await self._user(key.user_id, key, loaded.tenant_group)

    async def _user(self, user_id: UUID, key: identity.State, tenant_group: UUID) -> Principal | None:
        loaded, now = await self._load(user_id)
        user = _fold(loaded)
        if not user.active or loaded.tenant_group != tenant_group or loaded.tenant is None:
            return None
        if user.kind not in {"user", "service_user"} or user.email is None:
            return None
        return Principal(
            kind="service_user" if user.kind == "service_user" else "user",
            id=user_id,
            name=user.email,
            tenant_group=tenant_group,
            tenant=loaded.tenant,
            roles=user.roles,
            groups=user.groups,
            projects=user.projects,
            scopes=key.scopes,
            acts_for=await self._acts_for(user_id, tenant_group, now) if user.kind == "user" else (),
        )

    async def _acts_for(self, user_id: UUID, tenant_group: UUID, now: datetime) -> tuple[ActsFor, ...]:
        """The people who let the user decide in their place now, each with what is their own: one hop, never two."""
        given = await self._store.identities(tenant_group, "delegation", name=str(user_id))
        if not given:
            return ()
        histories = await self._store.events(identity.CATEGORY.name, given, tenant_group=tenant_group)
        delegations = [_fold_recorded(history).delegation for history in histories.values()]
        in_force = [each for each in delegations if each is not None and each.in_force(now)]
        people = await self._store.events(
            identity.CATEGORY.name, {each.from_user.id for each in in_force}, tenant_group=tenant_group
        )
        found: list[ActsFor] = []
        for each in in_force:
            person = _fold_recorded(people.get(each.from_user.id, ()))
            if person.active and person.email is not None:
                found.append(
                    ActsFor(
                        id=each.from_user.id,
                        email=person.email,
                        named=each.roles,
                        roles=person.roles,
                        groups=person.groups,
                        projects=person.projects,
                    )
                )
        return tuple(found)

    async def _load(self, stream_id: UUID) -> tuple[Loaded, datetime]:
        load = await self._store.load(identity.CATEGORY.name, {stream_id: 0})
        return load.streams[stream_id], load.now


def _token(headers: Mapping[str, str]) -> str | None:
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    token = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()
    return token if 0 < len(token) <= TOKEN_CHARS_MAX else None


def _fold(loaded: Loaded) -> identity.State:
    return _fold_recorded(loaded.events)


def _fold_recorded(history: Sequence[Recorded]) -> identity.State:
    return identity.CATEGORY.fold(tuple(recorded.event for recorded in history))


def _ended(key: identity.State, now: datetime) -> bool:
    return key.expires_at is not None and key.expires_at <= now
