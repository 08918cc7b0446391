"""States of long streams as bytes, so that they are folded from where they were last kept.

A snapshot is derived: it is made from facts, checked by `verify`, dropped by `rebuild`, and missed by nobody but the
clock. It is keyed by what folded it, so that a release with another state, another event inside it or another way of
folding reads none that is not its own.
"""

import hashlib
import inspect
import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from contracts.base import Actor
from libs.domain.core import Category
from libs.eventstore.port import EventStore, Load, Loaded, Recorded, SnapshotKey
from libs.telemetry.logs import get_logger

S = TypeVar("S")

_log = get_logger("eventstore")

SNAPSHOT_EVERY: Final = 500
"""Facts of a stream between its snapshots. Folding as many takes a few milliseconds."""

Told = tuple[UUID, UUID]
"""A command of a caller: (who, command)."""


@dataclass(frozen=True, slots=True)
class Kept(Generic[S]):
    """What an owner holds of a stream: its state, the trace that it began with, the commands that wrote facts of it."""

    state: S
    traceparent: str | None = None
    done: frozenset[Told] = frozenset()

    def above(self, category: Category[S], facts: Sequence[Recorded]) -> "Kept[S]":
        """With the facts that follow."""
        first = self.traceparent
        if first is None and facts:
            first = facts[0].metadata.traceparent
        return Kept(
            category.fold(tuple(fact.event for fact in facts), self.state),
            first,
            self.done.union(*(told(fact.metadata.actor, fact.metadata.causation) for fact in facts)),
        )


def told(actor: Actor, causation: UUID) -> frozenset[Told]:
    """A command of a caller, to be known again when it is sent again. Services repeat themselves by other means."""
    return frozenset() if actor.id is None else frozenset({(actor.id, causation)})


class Snapshots(Generic[S]):
    """Writes and reads the snapshots of a category."""

    def __init__(self, category: Category[S], *, every: int = SNAPSHOT_EVERY) -> None:
        self.every = every
        self._category = category
        state: Any = type(category.initial)
        self._adapter, self.schema = _adapter(state, category.evolve)

    def write(self, kept: Kept[S]) -> bytes:
        return self._adapter.dump_json(kept, exclude_defaults=True)

    def read(self, content: bytes) -> Kept[S]:
        """Return what was kept.

        Raises:
            pydantic.ValidationError: the bytes are not such.
        """
        kept: Kept[S] = self._adapter.validate_json(content)
        return kept

    async def load(
        self, store: EventStore, after: Mapping[UUID, int], *, beside: Collection[tuple[str, UUID]] = ()
    ) -> tuple[Load, dict[UUID, Kept[S]]]:
        """Load streams; with them what those had come to that are read from a snapshot on.

        One that cannot be read is as good as none.
        """
        if all(after.values()):  # every one is known already: nothing is asked for that could not be used
            return await store.load(self._category.name, after, beside=beside), {}
        key = SnapshotKey(self.schema, self.every)
        load = await store.load(self._category.name, after, beside=beside, snapshots=key)
        kept: dict[UUID, Kept[S]] = {}
        for stream_id, loaded in load.streams.items():
            if loaded.snapshot is not None:
                try:
                    kept[stream_id] = self.read(loaded.snapshot.content)
                except ValidationError:
                    _log.warning("a snapshot cannot be read", category=self._category.name, stream_id=str(stream_id))
                    return await store.load(self._category.name, after, beside=beside), {}
        return load, kept


async def read_states(
    store: EventStore, category: Category[S], stream_ids: Iterable[UUID], *, tenant_group: UUID | None = None
) -> dict[UUID, tuple[Loaded, S]]:
    """Return streams as they are now, with their states; absent ones and those of another tenant group are left out."""
    load, kept = await Snapshots(category).load(store, dict.fromkeys(stream_ids, 0))
    return {
        stream_id: (loaded, kept.get(stream_id, Kept(category.initial)).above(category, loaded.events).state)
        for stream_id, loaded in load.streams.items()
        if loaded.version and tenant_group in (None, loaded.tenant_group)
    }


@cache
def _adapter(state: Any, evolve: Any) -> tuple[TypeAdapter[Any], bytes]:
    """How a state is written, and the digest of that and of what folds it.

    The modules of both are taken as their text: a new comment costs a fold, a forgotten number would cost the truth.
    """
    adapter = TypeAdapter(Kept[state])
    schema = json.dumps(adapter.json_schema(mode="serialization"), sort_keys=True)
    folding = "".join(inspect.getsource(sys.modules[name]) for name in sorted({state.__module__, evolve.__module__}))
    return adapter, hashlib.sha256(f"{schema}\n{folding}".encode()).digest()
