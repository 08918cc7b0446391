"""Who there is: tenant groups, tenants, projects, users, keys, grants and delegations of users, one stream each.

Their ids are derived from what must be unique, so declaring the same thing again finds it and changes nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, assert_never
from uuid import UUID

from contracts.base import Actor, Event, Frozen, Instant, Principal
from contracts.errors import Rejected
from contracts.events import identity as e
from contracts.personal import ERASED, ERASED_EMAIL
from libs.domain import delegations, grants
from libs.domain.core import NOTHING, Category, Decided, facts, never, no_run
from libs.domain.lifecycle import IDENTITY, terminal

Status = Literal["absent", "active", "inactive"]
USERS: Final = frozenset({"user", "service_user"})

Kind = Literal[
    "tenant_group",
    "tenant",
    "project",
    "user",
    "service_user",
    "personal_access_token",
    "api_key",
    "grant",
    "delegation",
]


class CreateTenantGroup(Frozen):
    name: str


class CreateTenant(Frozen):
    name: str


class CreateProject(Frozen):
    key: str
    name: str


class RegisterUser(Frozen):
    email: str
    name: str
    kind: Literal["user", "service_user"] = "user"
    roles: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()


class DeactivateUser(Frozen):
    pass


class EraseUser(Frozen):
    by: Actor
    reason: str


class MintKey(Frozen):
    """`user_id` is whom a personal access token acts as; an API key acts as itself, with its own roles."""

    kind: Literal["personal_access_token", "api_key"]
    name: str
    user_id: UUID | None = None
    roles: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    expires_at: Instant | None = None


class RevokeKey(Frozen):
    pass


Command = (
    CreateTenantGroup
    | CreateTenant
    | CreateProject
    | RegisterUser
    | DeactivateUser
    | EraseUser
    | MintKey
    | RevokeKey
    | grants.Command
    | delegations.Command
)


@dataclass(frozen=True, slots=True)
class State:
    """One of them. `handle` is what it is known by: a user's email, a project's key, a grant's server, the id of the
    person whom a delegation lets decide, else the name.

    `user_id` is whose a token, a grant or a delegation is. Of who is `erased` no name is left.
    """

    status: Status = "absent"
    kind: Kind | None = None
    name: str = ""
    handle: str = ""
    email: str | None = None
    roles: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    user_id: UUID | None = None
    expires_at: datetime | None = None
    grant: grants.Grant | None = None
    delegation: delegations.Delegation | None = None
    erased: bool = False

    @property
    def active(self) -> bool:
        """Whether it exists and was neither deactivated nor revoked. An end that has passed is judged by the reader."""
        return self.status == "active"


def as_principal(user_id: UUID, person: State, *, tenant_group: UUID, tenant: UUID) -> Principal:
    """A person as the door would present them, where nobody else's decisions are theirs to take."""
    return Principal(
        kind="user",
        id=user_id,
        name=person.email or person.handle,
        tenant_group=tenant_group,
        tenant=tenant,
        roles=person.roles,
        groups=person.groups,
        projects=person.projects,
    )


def decide(command: Command, state: State, now: datetime) -> Decided:
    """Return the facts that follow from a command; nothing when they are already true.

    Raises:
        Rejected: ``identity.taken`` (409) when the id stands for something that was declared otherwise, or was ended;
            ``identity.not_found`` (404) when there is nothing to end; ``identity.active`` (409) when who is to be
            erased may still act; ``key.invalid`` (422); of grants and delegations as `libs.domain.grants` and
            `libs.domain.delegations` say.
    """
    match command:
        case CreateTenantGroup():
            return _declare(state, e.TenantGroupCreated(at=now, name=command.name))
        case CreateTenant():
            return _declare(state, e.TenantCreated(at=now, name=command.name))
        case CreateProject():
            return _declare(state, e.ProjectCreated(at=now, key=command.key, name=command.name))
        case RegisterUser():
            return _declare(
                state,
                e.UserRegistered(
                    at=now,
                    email=command.email,
                    name=command.name,
                    kind=command.kind,
                    roles=_ordered(command.roles),
                    groups=_ordered(command.groups),
                    projects=_ordered(command.projects),
                ),
            )
        case MintKey():
            return _mint(command, state, now)
        case DeactivateUser():
            return _end(state, e.UserDeactivated(at=now), USERS)
        case EraseUser():
            return _erase(command, state, now)
        case RevokeKey():
            return _end(state, e.KeyRevoked(at=now), frozenset({"personal_access_token", "api_key"}))
        case grants.GiveGrant() | grants.RevokeGrant():
            return grants.decide(command, state.grant, now)
        case delegations.Delegate() | delegations.EndDelegation():
            return delegations.decide(command, state.delegation, now)
        case _:
            assert_never(command)


def _mint(command: MintKey, state: State, now: datetime) -> Decided:
    if (command.kind == "personal_access_token") != (command.user_id is not None):
        raise Rejected("key.invalid", "a personal access token names the user that it acts as; an API key names none")
    if command.user_id is not None and (command.roles or command.projects):
        raise Rejected("key.invalid", "a personal access token has its user's roles and projects; give it none")
    if command.expires_at is not None and command.expires_at <= now:
        raise Rejected("key.invalid", f"the key would have ended at {command.expires_at.isoformat()}; give a later end")
    return _declare(
        state,
        e.KeyMinted(
            at=now,
            kind=command.kind,
            name=command.name,
            user_id=command.user_id,
            roles=_ordered(command.roles),
            projects=_ordered(command.projects),
            scopes=_ordered(command.scopes),
            expires_at=command.expires_at,
        ),
    )


def _declare(state: State, event: Event) -> Decided:
    if state.status == "absent":
        return facts(event)
    if state == evolve(State(), event):
        return NOTHING
    if state.status == "inactive":
        what = "this user was erased" if state.erased else f"{state.kind} {state.handle!r} was ended"
        raise Rejected("identity.taken", f"{what} and stays so", status=409)
    raise Rejected("identity.taken", f"{state.kind} {state.handle!r} exists and is declared otherwise", status=409)


def _end(state: State, event: Event, kinds: frozenset[str]) -> Decided:
    if state.kind not in kinds:
        raise Rejected("identity.not_found", f"there is no such {' or '.join(sorted(kinds))}", status=404)
    return facts(event) if state.active else NOTHING


def _erase(command: EraseUser, state: State, now: datetime) -> Decided:
    if state.kind not in USERS:
        raise Rejected("identity.not_found", "there is no such user", status=404)
    if state.active:
        raise Rejected(
            "identity.active",
            f"{state.handle} may still act: deactivate them first (`minutebook users deactivate {state.handle}`)",
            status=409,
        )
    return NOTHING if state.erased else facts(e.UserErased(at=now, by=command.by, reason=command.reason))


def _ordered(names: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def evolve(state: State, event: Event) -> State:
    """The state after one more fact."""
    match event:
        case e.TenantGroupCreated():
            return State("active", "tenant_group", name=event.name, handle=event.name)
        case e.TenantCreated():
            return State("active", "tenant", name=event.name, handle=event.name)
        case e.ProjectCreated():
            return State("active", "project", name=event.name, handle=event.key)
        case e.UserRegistered():
            return State(
                "active",
                event.kind,
                name=event.name,
                handle=event.email,
                email=event.email,
                roles=frozenset(event.roles),
                groups=frozenset(event.groups),
                projects=frozenset(event.projects),
            )
        case e.KeyMinted():
            return State(
                "active",
                event.kind,
                name=event.name,
                handle=event.name,
                roles=frozenset(event.roles),
                projects=frozenset(event.projects),
                scopes=frozenset(event.scopes),
                user_id=event.user_id,
                expires_at=event.expires_at,
            )
        case e.GrantGiven():
            return State(
                "active",
                "grant",
                name=event.server_id,
                handle=event.server_id,
                user_id=event.user_id,
                expires_at=event.expires_at,
                grant=grants.evolve(state.grant, event),
            )
        case e.GrantRevoked():
            return replace(state, status="inactive", grant=grants.evolve(state.grant, event))
        case e.Delegated():
            return State(
                "active",
                "delegation",
                name=event.from_user.email,
                handle=str(event.to_user.id),
                user_id=event.from_user.id,
                expires_at=event.ends_at,
                delegation=delegations.evolve(state.delegation, event),
            )
        case e.DelegationEnded():
            return replace(state, status="inactive", delegation=delegations.evolve(state.delegation, event))
        case e.UserDeactivated() | e.KeyRevoked():
            return replace(state, status="inactive")
        case e.UserErased():
            return replace(state, name=ERASED, handle=ERASED_EMAIL, email=ERASED_EMAIL, erased=True)
        case _:
            return state


def _columns(state: State) -> Mapping[str, Any]:
    return {"kind": state.kind, "name": state.handle, "owner": state.user_id, "holds": _held(state)}


def held_names(roles: Collection[str] = (), groups: Collection[str] = (), projects: Collection[str] = ()) -> list[str]:
    """What a user may hold, as users are found by it."""
    return sorted(
        {
            *(f"role:{name}" for name in roles),
            *(f"group:{name}" for name in groups),
            *(f"project:{key}" for key in projects),
        }
    )


def _held(state: State) -> list[str]:
    return held_names(state.roles, state.groups, state.projects) if state.kind == "user" else []


CATEGORY: Final[Category[State]] = Category(
    name="identity",
    initial=State(),
    evolve=evolve,
    status=lambda state: state.status,
    columns=_columns,
    wake_at=never,
    run_id=no_run,
    terminal=terminal(IDENTITY),
)
