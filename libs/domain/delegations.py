"""Delegations: a person lets another one decide in their place, from one moment to another."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from contracts.base import Actor, Event, Frozen, Instant, Principal
from contracts.errors import Rejected
from contracts.events import identity as e
from contracts.events.run import UserRef
from libs.domain.access import is_administrator
from libs.domain.core import NOTHING, Decided, facts


class Delegate(Frozen):
    """Let `to_user` decide as `from_user` may; only under the workflow roles `roles`, where some are named."""

    principal: Principal
    from_user: UserRef
    to_user: UserRef
    starts_at: Instant
    ends_at: Instant
    roles: frozenset[str] = frozenset()


class EndDelegation(Frozen):
    """End it before its time. For the two that it is between, and for administrators."""

    principal: Principal


Command = Delegate | EndDelegation


@dataclass(frozen=True, slots=True)
class Delegation:
    """Who lets whom decide, and when."""

    from_user: UserRef
    to_user: UserRef
    starts_at: datetime
    ends_at: datetime
    roles: frozenset[str]
    by: Actor
    ended: bool = False

    def in_force(self, now: datetime) -> bool:
        """Whether it counts at that moment, where the person who gave it is active."""
        return not self.ended and self.starts_at <= now < self.ends_at


def decide(command: Command, delegation: Delegation | None, now: datetime) -> Decided:
    """Return the facts that follow; none when they are already true.

    Raises:
        contracts.errors.Rejected: ``delegation.not_yours`` (403); ``delegation.invalid`` (422), to oneself, or to a
            moment that has passed; ``delegation.not_found`` (404).
    """
    match command:
        case Delegate():
            return _give(command, delegation, now)
        case EndDelegation():
            return _end(command.principal, delegation, now)
        case _:
            assert_never(command)


def _give(command: Delegate, delegation: Delegation | None, now: datetime) -> Decided:
    principal = command.principal
    if principal.id != command.from_user.id and not is_administrator(principal):
        message = "a person's decisions are delegated by that person, and by administrators"
        raise Rejected("delegation.not_yours", message, status=403)
    if delegation is not None:
        return NOTHING  # the same command told twice: ids are minted with it
    if command.from_user.id == command.to_user.id:
        raise Rejected("delegation.invalid", "nobody delegates to themself; name somebody else")
    if command.ends_at <= max(command.starts_at, now):
        raise Rejected("delegation.invalid", "a delegation ends after it starts, and in time to come; give a later end")
    event = e.Delegated(
        at=now,
        from_user=command.from_user,
        to_user=command.to_user,
        starts_at=command.starts_at,
        ends_at=command.ends_at,
        roles=tuple(sorted(command.roles)),
        by=principal.actor,
    )
    return facts(event)


def _end(principal: Principal, delegation: Delegation | None, now: datetime) -> Decided:
    mine = delegation is not None and principal.id in {delegation.from_user.id, delegation.to_user.id}
    if delegation is None or not (mine or is_administrator(principal)):
        raise Rejected("delegation.not_found", "there is no such delegation", status=404)
    return NOTHING if delegation.ended else facts(e.DelegationEnded(at=now, by=principal.actor))


def evolve(delegation: Delegation | None, event: Event) -> Delegation | None:
    """The delegation after one more fact of its stream."""
    match event:
        case e.Delegated():
            return Delegation(
                from_user=event.from_user,
                to_user=event.to_user,
                starts_at=event.starts_at,
                ends_at=event.ends_at,
                roles=frozenset(event.roles),
                by=event.by,
            )
        case e.DelegationEnded() if delegation is not None:
            return replace(delegation, ended=True)
        case _:
            return delegation
