"""Whom four eyes bar: who revised what is decided on, and who decided or completed an earlier step.

Judged of a run and its decisions, also of a run that another one is forked from: the fork has none of those decisions,
so it is told the people.
"""

from collections.abc import Callable
from uuid import UUID

from contracts.base import Actor
from libs.domain.decision import State as Decision
from libs.domain.run.commands import Child
from libs.domain.run.state import State

ChildOf = Callable[[UUID | None], Child | None]
"""The attempt, decision, wait or effect of an id, as it was read; None of those that were not."""


def revisers_of(state: State, child_of: ChildOf, key: str) -> tuple[UUID, ...]:
    """Who revised the artefact of a step since it was made; or let pass, perhaps revised, what its gate refused."""
    shown = state.step(key)
    people = [*shown.revisers]
    if shown.waits_on == "escalation":
        people += _id(shown.by)
    if shown.revised_at is not None:
        record = state.step(shown.revised_at)
        decided = child_of(record.open_id)
        people += decided.revisers if isinstance(decided, Decision) and decided.revisers else _id(record.by)
    return tuple(dict.fromkeys(people))


def deciders_of(state: State, child_of: ChildOf, key: str) -> tuple[UUID, ...]:
    """Who decided or completed a step: of a quorum all who voted, of a delegate the other person too."""
    record = state.step(key)
    decided = child_of(record.open_id)
    people = {*_id(record.by), *record.deciders}
    if isinstance(decided, Decision) and record.waits_on == "decision":
        people |= {*_id(decided.by), *([decided.on_behalf_of.id] if decided.on_behalf_of else [])}
        people |= {person for ballot in decided.ballots for person in (ballot.by.id, ballot.person) if person}
        people |= set(decided.revisers)
    return tuple(sorted(people))


def _id(actor: Actor | None) -> list[UUID]:
    return [] if actor is None or actor.id is None else [actor.id]
