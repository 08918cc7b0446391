"""Grants: a user's credential for an MCP server, one at a time. The record says that it was given, never what it is."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, assert_never
from uuid import UUID

from contracts.base import Actor, Event, Frozen, Instant, Principal
from contracts.errors import Rejected
from contracts.events import identity as e
from libs.domain.access import is_administrator
from libs.domain.core import NOTHING, Decided, facts


class GiveGrant(Frozen):
    """Give a grant, or another one in the place of what was given before. `secret_id` is under which it is sealed."""

    principal: Principal
    user_id: UUID
    user_kind: Literal["user", "service_user"]
    server_id: str
    secret_id: UUID
    expires_at: Instant | None = None


class RevokeGrant(Frozen):
    """End a grant; it may be given again. The user that it is of is known to the grant, their kind is not."""

    by: Actor


Command = GiveGrant | RevokeGrant


@dataclass(frozen=True, slots=True)
class Grant:
    """The grant that was given last, and the ids of all secrets that were given. Whether it counts, `usable` says."""

    user_id: UUID
    server_id: str
    secret_id: UUID
    given_at: datetime
    given_by: Actor
    expires_at: datetime | None
    given: frozenset[UUID]
    revoked: bool = False

    def usable(self, now: datetime) -> bool:
        """Whether a write may use it at that moment, where its user is active."""
        return not self.revoked and not self.expired(now)

    def expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


def require_may_manage(principal: Principal, user_id: UUID, user_kind: str) -> None:
    """Hold that a user's grants are the principal's affair: one's own, and for an administrator a service user's.

    No administrator gives a grant for a person: what is written under it is written in that person's name.

    Raises:
        contracts.errors.Rejected: ``grant.not_yours`` (403).
    """
    if principal.id == user_id:
        return
    if user_kind == "service_user" and is_administrator(principal):
        return
    raise Rejected(
        "grant.not_yours",
        "a person's grants are given by that person, and a service user's by administrators",
        status=403,
    )


def decide(command: Command, grant: Grant | None, now: datetime) -> Decided:
    """Return the facts that follow; none when the same secret was given, or the grant was revoked, before.

    Raises:
        contracts.errors.Rejected: ``grant.not_yours`` (403); ``grant.invalid`` (422), it would have ended already;
            ``grant.not_found`` (404), there is none to revoke.
    """
    match command:
        case GiveGrant():
            return _give(command, grant, now)
        case RevokeGrant():
            if grant is None:
                raise Rejected("grant.not_found", "there is no such grant", status=404)
            return NOTHING if grant.revoked else facts(e.GrantRevoked(at=now, by=command.by))
        case _:
            assert_never(command)


def _give(command: GiveGrant, grant: Grant | None, now: datetime) -> Decided:
    require_may_manage(command.principal, command.user_id, command.user_kind)
    if grant is not None and command.secret_id in grant.given:
        return NOTHING  # told twice, perhaps long after it was revoked or another one took its place
    if command.expires_at is not None and command.expires_at <= now:
        raise Rejected(
            "grant.invalid", f"the grant would have ended at {command.expires_at.isoformat()}; give a later end"
        )
    return facts(
        e.GrantGiven(
            at=now,
            user_id=command.user_id,
            server_id=command.server_id,
            secret_id=command.secret_id,
            expires_at=command.expires_at,
            by=command.principal.actor,
        )
    )


def evolve(grant: Grant | None, event: Event) -> Grant | None:
    """The grant after one more fact of its stream."""
    match event:
        case e.GrantGiven():
            return Grant(
                user_id=event.user_id,
                server_id=event.server_id,
                secret_id=event.secret_id,
                given_at=event.at,
                given_by=event.by,
                expires_at=event.expires_at,
                given=frozenset({event.secret_id}) if grant is None else grant.given | {event.secret_id},
            )
        case e.GrantRevoked() if grant is not None:
            return replace(grant, revoked=True)
        case _:
            return grant
