"""Provisioning: who there is. Used by the development stack and by administration, and safe to repeat."""

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from contracts import ids
from contracts.base import Actor
from contracts.errors import MinutebookError, Rejected
from libs.bus.port import Bus
from libs.clock import monotonic
from libs.domain import identity as domain
from libs.eventstore.port import EventStore
from libs.ids import mint
from libs.owner import Item, Owner, Publisher
from libs.process import actor
from libs.process.again import persist

TENANT_DEFAULT: Final = "default"
"""The tenant that every group begins with."""

PATIENCE: Final = timedelta(seconds=10)
"""For how long a command that lost to others is tried again."""

TOKEN_BYTES: Final = 32
TOKEN_CHARS_MIN: Final = 24
PREFIXES: Final = {"personal_access_token": "mbt_", "api_key": "mbk_"}
"""What tells a leaked secret's kind, to people and to secret scanners."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where identities are filed: a tenant of a tenant group."""

    tenant_group: UUID
    tenant: UUID


@dataclass(frozen=True, slots=True)
class MintedKey:
    """A key with its secret, which is shown this once and kept nowhere."""

    id: UUID
    secret: str

    def __repr__(self) -> str:
        return f"MintedKey(id={self.id}, secret=***)"


def sha256_of(secret: str) -> str:
    """What is known of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Identity:
    """The owner of `identity`. Every call gives the id of what is there afterwards, whether it was there before."""

    def __init__(self, store: EventStore, bus: Bus, *, patience: timedelta = PATIENCE) -> None:
        self._patience = patience
        self._owner: Owner[domain.State, domain.Command] = Owner(
            domain.CATEGORY, domain.decide, store=store, publisher=Publisher(bus, store)
        )

    async def provision_group(self, name: str) -> Place:
        """Create a tenant group with its default tenant."""
        group = ids.tenant_group(name)
        place = Place(group, ids.tenant(group, TENANT_DEFAULT))
        await self.do(place, group, domain.CreateTenantGroup(name=name))
        await self.do(place, place.tenant, domain.CreateTenant(name=TENANT_DEFAULT))
        return place

    async def tenant(self, tenant_group: UUID, name: str, *, by: Actor | None = None) -> Place:
        """Create a tenant of a group."""
        place = Place(tenant_group, ids.tenant(tenant_group, name))
        await self.do(place, place.tenant, domain.CreateTenant(name=name), by)
        return place

    async def project(self, place: Place, key: str, *, name: str | None = None, by: Actor | None = None) -> UUID:
        """Create a project; runs are filed under its key."""
        stream_id = ids.project(place.tenant_group, key)
        await self.do(place, stream_id, domain.CreateProject(key=key, name=name or key), by)
        return stream_id

    async def register_user(
        self,
        place: Place,
        email: str,
        *,
        name: str | None = None,
        kind: Literal["user", "service_user"] = "user",
        roles: Collection[str] = (),
        groups: Collection[str] = (),
        projects: Collection[str] = (),
        by: Actor | None = None,
    ) -> UUID:
        """Register a person or a service user.

        Raises:
            contracts.errors.Rejected: 409, the email is registered otherwise or was deactivated.
        """
        stream_id = ids.user(place.tenant_group, email)
        command = domain.RegisterUser(
            email=email,
            name=name or email,
            kind=kind,
            roles=frozenset(roles),
            groups=frozenset(groups),
            projects=frozenset(projects),
        )
        await self.do(place, stream_id, command, by)
        return stream_id

    async def deactivate_user(self, place: Place, user_id: UUID, *, by: Actor | None = None) -> None:
        """End a user: its tokens stop to count, and writes of its runs are refused."""
        await self.do(place, user_id, domain.DeactivateUser(), by)

    async def erase_user(self, place: Place, user_id: UUID, *, reason: str, by: Actor | None = None) -> None:
        """Record that a deactivated user is erased. Their key is destroyed by who erases (`services.host.erasing`).

        Raises:
            contracts.errors.Rejected: 404 when there is no such user; 409 when they are active still.
        """
        await self.do(place, user_id, domain.EraseUser(by=by or actor("api"), reason=reason), by)

    async def mint_key(
        self,
        place: Place,
        *,
        name: str,
        user_id: UUID | None = None,
        roles: Collection[str] = (),
        projects: Collection[str] = (),
        scopes: Collection[str] = (),
        expires_at: datetime | None = None,
        secret: str | None = None,
        by: Actor | None = None,
    ) -> MintedKey:
        """Mint a personal access token of `user_id`, or an API key that acts as itself.

        A given `secret` is taken as it is, so that a development stack keeps its tokens over restarts.

        Raises:
            contracts.errors.Rejected: 422 when the secret is too short, has ended already, or has roles that a
                token may not have; 409 when the secret stands for another key or was revoked.
        """
        kind: Literal["personal_access_token", "api_key"] = "api_key" if user_id is None else "personal_access_token"
        if secret is None:
            secret = PREFIXES[kind] + secrets.token_urlsafe(TOKEN_BYTES)
        elif len(secret) < TOKEN_CHARS_MIN:
            raise Rejected("key.weak", f"a given secret needs at least {TOKEN_CHARS_MIN} characters")
        stream_id = ids.key(sha256_of(secret))
        command = domain.MintKey(
            kind=kind,
            name=name,
            user_id=user_id,
            roles=frozenset(roles),
            projects=frozenset(projects),
            scopes=frozenset(scopes),
            expires_at=expires_at,
        )
        await self.do(place, stream_id, command, by)
        return MintedKey(stream_id, secret)

    async def revoke_key(self, place: Place, key_id: UUID, *, by: Actor | None = None) -> None:
        """End a key. It counts no more within `services.api.auth.CACHED_SECONDS_MAX`."""
        await self.do(place, key_id, domain.RevokeKey(), by)

    async def do(self, place: Place, stream_id: UUID, command: domain.Command, by: Actor | None = None) -> domain.State:
        """Carry a command out, and return what there is then.

        Raises:
            contracts.errors.Rejected: as `libs.domain.identity.decide` says.
            contracts.errors.Unavailable: the database does not answer; nothing is known.
            contracts.errors.Conflict: others were first again and again, for as long as there is patience.
        """
        item: Item[domain.Command] = Item(
            stream_id=stream_id,
            command=command,
            actor=by or actor("api"),
            causation=mint(),
            tenant_group=place.tenant_group,
            tenant=place.tenant,
        )
        return await persist(lambda: self._record(item), until=monotonic() + self._patience.total_seconds())

    async def _record(self, item: Item[domain.Command]) -> domain.State:
        [result] = await self._owner.handle([item])
        if isinstance(result, MinutebookError):
            raise result
        return result.state
