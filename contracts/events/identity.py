"""Facts of tenant groups, tenants, projects, users and keys. Written by the api."""

from typing import Annotated, Literal
from uuid import UUID

from contracts.base import Actor, Event, Instant
from contracts.events.run import UserRef
from contracts.personal import ERASED_EMAIL, OF_STREAM, Personal
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

    email: Annotated[str, Personal(OF_STREAM, erased=ERASED_EMAIL)]
    name: Annotated[str, Personal(OF_STREAM)]
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
    name: Annotated[str, Personal("user_id")]
    user_id: UUID | None
    roles: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    expires_at: Instant | None = None


@event("identity.key_revoked")
class KeyRevoked(Event):
    pass


@event("identity.user_erased")
class UserErased(Event):
    """The key of the person's fields is destroyed: what the history says of them by name cannot be read any more."""

    by: Actor
    reason: str


@event("identity.grant_given")
class GrantGiven(Event):
    """A user's credential for an MCP server. It is sealed in `grant_secrets` under `secret_id`, never here."""

    user_id: UUID
    server_id: str
    secret_id: UUID
    expires_at: Instant | None
    by: Actor


@event("identity.grant_revoked")
class GrantRevoked(Event):
    by: Actor


@event("identity.delegated")
class Delegated(Event):
    """`to_user` may decide as `from_user` may, between two moments; only under `roles` where some are named."""

    from_user: UserRef
    to_user: UserRef
    starts_at: Instant
    ends_at: Instant
    roles: tuple[str, ...]
    by: Actor


@event("identity.delegation_ended")
class DelegationEnded(Event):
    by: Actor


IdentityEvent = (
    TenantGroupCreated
    | TenantCreated
    | ProjectCreated
    | UserRegistered
    | UserDeactivated
    | UserErased
    | KeyMinted
    | KeyRevoked
    | GrantGiven
    | GrantRevoked
    | Delegated
    | DelegationEnded
)
