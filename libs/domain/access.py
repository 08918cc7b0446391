"""Who may see a run and act on it: one rule for every door and every owner.

Callers have compared tenant groups before: what belongs to another group does not exist for them.
"""

from typing import Final, Protocol
from uuid import UUID

from contracts.base import Principal
from contracts.events.run import RoleBinding


class Member(Protocol):
    """Somebody as roles and visibility are judged: a principal, or a person who lets one decide in their place."""

    @property
    def id(self) -> UUID: ...
    @property
    def roles(self) -> frozenset[str]: ...
    @property
    def groups(self) -> frozenset[str]: ...
    @property
    def projects(self) -> frozenset[str]: ...


ADMINISTRATOR: Final = "platform_admin"
"""The platform role whose holders see every run of their tenant group."""


ESCALATION_ROLE: Final = "admin"
"""Who is asked about a failed step that names nobody."""


def escalation_binding(role: str, binding: RoleBinding) -> RoleBinding:
    """What a role resolves to where something is escalated to it: administrators hold `admin` then, however bound."""
    if role != ESCALATION_ROLE:
        return binding
    return binding.model_copy(update={"roles": tuple(dict.fromkeys((*binding.roles, ADMINISTRATOR)))})


def is_administrator(principal: Member) -> bool:
    """Whether the principal sees and administers everything of its tenant group."""
    return ADMINISTRATOR in principal.roles


def sees_run(principal: Member, initiator: UUID, project_id: str | None) -> bool:
    """Whether a run exists for the principal: administrators, its initiator and members of its project.

    To anyone else it must look absent: 404, never 403.
    """
    return (
        is_administrator(principal)
        or principal.id == initiator
        or (project_id is not None and project_id in principal.projects)
    )


def sees_to_decide(principal: Principal, initiator: UUID, project_id: str | None) -> bool:
    """Whether the decisions of a run exist for the principal: it sees the run, or somebody it may decide for does."""
    members: tuple[Member, ...] = (principal, *principal.acts_for)
    return any(sees_run(member, initiator, project_id) for member in members)


def holds(principal: Member, binding: RoleBinding, *, project_id: str | None = None) -> bool:
    """Whether the principal holds the workflow role that was resolved to `binding`; `project_id` is the run's project.

    An administrator does not hold a role by being one: who decides is named by the definition alone.
    """
    return (
        not principal.roles.isdisjoint(binding.roles)
        or not principal.groups.isdisjoint(binding.groups)
        or (binding.project and project_id is not None and project_id in principal.projects)
    )
