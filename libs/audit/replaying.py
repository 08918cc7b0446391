"""A run as it stood at any version of its history: folded by the same `evolve` as its owner folds it."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import asyncpg
from pydantic import TypeAdapter

from contracts.errors import Rejected
from libs.domain import run
from libs.domain.categories import CATEGORIES
from libs.eventstore.folding import Folded, read_streams
from libs.eventstore.mapper import Mapper
from libs.eventstore.people import PostgresPeople
from libs.eventstore.port import Recorded
from libs.postgres.pool import transaction

CHILDREN: Final = ("decision", "effect", "attempt", "wait")


@dataclass(frozen=True, slots=True)
class Child:
    """A stream that belongs to the run, as it stood then."""

    category: str
    stream_id: UUID
    version: int
    state: Any


@dataclass(frozen=True, slots=True)
class Replayed:
    """A run at `version`, of `versions` that it has. `fact` is the one that brought it there."""

    run_id: UUID
    version: int
    versions: int
    fact: Recorded
    state: run.State
    children: tuple[Child, ...]
    broken: str | None

    def as_json(self) -> dict[str, Any]:
        """The states whole, as JSON."""
        return {
            "run_id": str(self.run_id),
            "version": self.version,
            "versions": self.versions,
            "type": self.fact.type,
            "recorded_at": self.fact.recorded_at.isoformat(),
            "actor": self.fact.metadata.actor.model_dump(mode="json"),
            "digest": self.fact.digest.hex(),
            "chain": self.broken or "holds",
            "state": _json(self.state),
            "children": [
                {
                    "category": child.category,
                    "stream_id": str(child.stream_id),
                    "version": child.version,
                    "state": _json(child.state),
                }
                for child in self.children
            ],
        }


async def replay(pool: asyncpg.Pool, run_id: UUID, *, at: int | None = None, mapper: Mapper | None = None) -> Replayed:
    """Fold a run's facts up to version `at`, or all of them, and with it what belongs to it as of that fact.

    What it brought forth is taken up to that fact in the order of the record: what a service had written by then and
    the run had not heard of is in it, too. Of what the same statement gave birth to, that is in it which the run names.

    Raises:
        contracts.errors.Rejected: 404 ``run.not_found``; 422 ``run.no_version``.
        contracts.errors.Unavailable: the database does not answer, or a fact is of a newer release.
    """
    known = mapper or Mapper(people=PostgresPeople(pool))
    async with transaction(pool, isolation="repeatable_read", readonly=True) as connection:
        found = await read_streams(connection, run.CATEGORY, [run_id], known)
        if run_id not in found:
            raise Rejected("run.not_found", f"there is no run {run_id} in the history", status=404)
        folded = found[run_id]
        facts = folded.facts
        version = len(facts) if at is None else at
        if not 1 <= version <= len(facts):
            why = f", and its chain breaks there: {folded.broken}" if folded.broken else ""
            raise Rejected("run.no_version", f"run {run_id} has versions 1 to {len(facts)}{why}; there is no {at}")
        state = run.CATEGORY.fold(tuple(fact.event for fact in facts[:version]))
        children = await _children(connection, run_id, state, facts[version - 1], known)
    return Replayed(
        run_id=run_id,
        version=version,
        versions=folded.version,
        fact=facts[version - 1],
        state=state,
        children=children,
        broken=folded.broken,
    )


async def _children(
    connection: asyncpg.Connection, run_id: UUID, state: run.State, until: Recorded, mapper: Mapper
) -> tuple[Child, ...]:
    named = {i for step in state.steps.values() for i in (step.open_id, step.effect_id)}
    children = []
    for name in CHILDREN:
        rows = await connection.fetch(f"select stream_id from {name}_heads where run_id = $1", run_id)  # noqa: S608
        folded = await read_streams(connection, CATEGORIES[name], [row["stream_id"] for row in rows], mapper)
        children += [child for found in _in_order(folded) if (child := _as_of(name, found, until, named)) is not None]
    return tuple(children)


def _as_of(name: str, folded: Folded, until: Recorded, named: Collection[UUID | None]) -> Child | None:
    end = (until.era, until.xid)
    facts = [
        fact
        for fact in folded.facts
        if (fact.era, fact.xid) < end or ((fact.era, fact.xid) == end and folded.stream_id in named)
    ]
    if not facts:
        return None
    state = CATEGORIES[name].fold(tuple(fact.event for fact in facts))
    return Child(name, folded.stream_id, len(facts), state)


def _in_order(folded: Mapping[UUID, Folded]) -> Sequence[Folded]:
    """By birth."""

    def place(found: Folded) -> tuple[int, int, int]:
        first = found.facts[0]
        return first.era, first.xid, first.position

    return sorted((found for found in folded.values() if found.facts), key=place)


def _json(state: Any) -> Any:
    """A state as JSON, without what is as it is at the beginning."""
    return json.loads(TypeAdapter(type(state)).dump_json(state, exclude_defaults=True))
