"""Facts of tenant groups, tenants, projects, users and keys. Written by the api."""

from typing import Literal
from uuid import UUID

from contracts.base import Event, Instant
from contracts.registry import event


@event("identity.tenant_group_created")
class TenantGroupCreated(Event):
    name: str


@event("identity.tenant_created")
class TenantCreated(Event):
    name: str


@event("identity.project_created")
class ProjectCreated(Event):
    key: str
    name: str


@event("identity.user_registered")
class UserRegistered(Event):
    """A person, or a service user that owns the runs nobody starts by hand."""

    email: str
    name: str
    kind: Literal["user", "service_user"]
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()


@event("identity.user_deactivated")
class UserDeactivated(Event):
    pass


@event("identity.key_minted")
class KeyMinted(Event):
    """A personal access token (acts as `user_id`) or an API key (acts as itself, with its own roles).

    The secret is shown once and kept nowhere: the stream's id is derived from its hash.
    """

    kind: Literal["personal_access_token", "api_key"]
    name: str
    user_id: UUID | None
    roles: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    expires_at: Instant | None = None


@event("identity.key_revoked")
class KeyRevoked(Event):
    pass


IdentityEvent = (
    TenantGroupCreated | TenantCreated | ProjectCreated | UserRegistered | UserDeactivated | KeyMinted | KeyRevoked
)
