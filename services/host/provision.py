"""The first identities of an installation: a tenant group, a tenant, keys that administer it, and people."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from contracts import ids
from contracts.errors import Rejected
from libs.bus.port import Bus
from libs.eventstore.port import EventStore
from services.api.identity import TENANT_DEFAULT, Identity, MintedKey

ADMINISTRATOR: Final = "platform_admin"
"""The role of a key that is given none."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody to register, with a personal access token. Projects that are not there are made."""

    email: str
    name: str | None = None
    roles: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What there is now. The secrets of `key` and `token` are kept nowhere else."""

    tenant_group: UUID
    tenant: UUID
    group_existed: bool
    key: MintedKey
    user: UUID | None = None
    token: MintedKey | None = None


async def provision(
    store: EventStore,
    bus: Bus,
    *,
    group: str,
    tenant: str = TENANT_DEFAULT,
    key: str,
    roles: Collection[str] = (ADMINISTRATOR,),
    person: Person | None = None,
) -> Provisioned:
    """Make what is missing and mint a new key. Repeated, it finds the group and mints another one.

    Raises:
        contracts.errors.Rejected: a name is empty; or 409, the person is registered with other roles or projects.
        contracts.errors.Unavailable: the database does not answer.
    """
    for what, name in (("group", group), ("tenant", tenant), ("key", key)):
        if not name.strip():
            raise Rejected("provision.unnamed", f"the {what} needs a name")
    identity = Identity(store, bus)
    existed = await _there(store, ids.tenant_group(group))
    place = await identity.provision_group(group)
    if tenant != TENANT_DEFAULT:
        place = await identity.tenant(place.tenant_group, tenant)
    user_id, token = None, None
    if person is not None:
        for project in person.projects:
            await identity.project(place, project)
        user_id = await identity.register_user(
            place, person.email, name=person.name, roles=person.roles, projects=person.projects
        )
        token = await identity.mint_key(place, name=f"token of {person.email}", user_id=user_id)
    minted = await identity.mint_key(place, name=key, roles=roles)
    return Provisioned(
        tenant_group=place.tenant_group,
        tenant=place.tenant,
        group_existed=existed,
        key=minted,
        user=user_id,
        token=token,
    )


async def _there(store: EventStore, tenant_group: UUID) -> bool:
    load = await store.load("identity", {tenant_group: 0})
    return bool(load.streams[tenant_group].events)
