"""Who holds the roles of a decision now: read from the identities of its tenant group."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from contracts.events.decision import Seat
from libs.domain import identity
from libs.domain.access import holds, sees_run
from libs.domain.decision import State, roles_of
from libs.eventstore.port import Store


@dataclass(frozen=True, slots=True)
class Person:
    """A user as roles are judged."""

    id: UUID
    active: bool
    roles: frozenset[str]
    groups: frozenset[str]
    projects: frozenset[str]


class People:
    """Reads the users of a tenant group. Service users and API keys are nobody who votes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def holding(self, tenant_group: UUID, states: Collection[State]) -> tuple[Person, ...]:
        """Every active user who may hold a role that votes on one of these decisions, in order of id."""
        held = {name for state in states for name in _asked_for(state)}
        people = await self.named(tenant_group, await self._store.holders(tenant_group, held)) if held else {}
        return tuple(people[i] for i in sorted(people) if people[i].active)

    async def named(self, tenant_group: UUID, user_ids: Collection[UUID]) -> Mapping[UUID, Person]:
        """Users by id, also those who were deactivated; who is no user of the group is left out."""
        histories = await self._store.events(identity.CATEGORY.name, user_ids, tenant_group=tenant_group)
        found: dict[UUID, Person] = {}
        for user_id, history in histories.items():
            state = identity.CATEGORY.fold(tuple(recorded.event for recorded in history))
            if state.kind == "user":
                found[user_id] = Person(user_id, state.active, state.roles, state.groups, state.projects)
        return found


def _asked_for(state: State) -> Iterator[str]:
    for binding in roles_of(state, escalated=True).values():
        projects = [state.project_id] if binding.project and state.project_id is not None else []
        yield from identity.held_names(binding.roles, binding.groups, projects)


def seats_of(state: State, people: Collection[Person]) -> tuple[Seat, ...]:
    """Who of these holds each role that may vote, now or once it is passed on. Who does not see the run cannot vote."""
    initiator = state.initiated_by
    assert initiator is not None, "a decision that was opened has its run's initiator"
    seeing = [person for person in people if sees_run(person, initiator.id, state.project_id)]
    return tuple(
        Seat(
            role=role,
            voters=tuple(p.id for p in seeing if holds(p, binding, project_id=state.project_id)),
        )
        for role, binding in roles_of(state, escalated=True).items()
    )
