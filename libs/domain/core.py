"""What the aggregates share: the shape of a decision's result and of a category."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from contracts.base import Event

S = TypeVar("S")


if TYPE_CHECKING:
    from dataclasses import replace as replace  # its arguments are checked against the fields
else:

    def replace(state, /, **changes):
        """A frozen state with some of its fields changed: `dataclasses.replace`, at a fraction of its cost.

        For dataclasses whose fields are the arguments of their constructor, in order. Those without slots are copied
        by their dictionaries, which costs the same however many fields they have.
        """
        of = type(state)
        places, values_of = _fields(of)
        if values_of is None:
            if not changes.keys() <= places.keys():
                raise KeyError(*(changes.keys() - places.keys()))
            copy = object.__new__(of)
            copy.__dict__.update(state.__dict__, **changes)
            return copy
        values = list(values_of(state))
        for name, value in changes.items():
            values[places[name]] = value
        return of(*values)


@cache
def _fields(of: type) -> tuple[Mapping[str, int], Callable[[Any], tuple[Any, ...]] | None]:
    """Where a class has its fields, and what reads all of them from one that keeps them in slots."""
    names = [field.name for field in dataclasses.fields(of)]
    return {name: place for place, name in enumerate(names)}, attrgetter(*names) if hasattr(of, "__slots__") else None


@dataclass(frozen=True, slots=True)
class Birth:
    """The first fact of another stream, written in the same statement as the decider's own facts.

    Skipped when that stream exists already. `work_subject` also puts the stream into `ready`.
    """

    category: str
    stream_id: UUID
    event: Event
    work_subject: str | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """A head row of another category that must be in one of `states`, locked for share, for the append to hold."""

    category: str
    stream_id: UUID
    states: frozenset[str]


@dataclass(frozen=True, slots=True)
class Decided:
    """What follows from a command. Empty when it is already true.

    `blobs` maps the digests of new `BlobRef`s in the events to their canonical JSON bytes. `ready` puts streams
    that exist already back into the claimable work: stream id → work subject. `state` is what the stream's state has
    become, from a decider that folded its facts as it wrote them. After `deadline` nothing of it is written.
    """

    events: tuple[Event, ...] = ()
    births: tuple[Birth, ...] = ()
    guards: tuple[Guard, ...] = ()
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    ready: Mapping[UUID, str] = field(default_factory=dict)
    state: Any = None
    deadline: datetime | None = None


NOTHING = Decided()


def facts(*events: Event, guards: tuple[Guard, ...] = (), blobs: Mapping[str, bytes] | None = None) -> Decided:
    """A decision that concerns its own stream only."""
    return Decided(events=events, guards=guards, blobs=blobs or {})


@dataclass(frozen=True, slots=True)
class Category(Generic[S]):
    """A kind of stream: how its state is folded and what of it stands in its head row.

    `status` is the head's `state`; `columns` are its other derived columns, by name; `wake_at` is the earliest
    moment at which the owner must look again, None for never. `run_id` is the run that the stream belongs to.
    `terminal` holds the states that nothing follows.
    """

    name: str
    initial: S
    evolve: Callable[[S, Event], S]
    status: Callable[[S], str]
    columns: Callable[[S], Mapping[str, Any]]
    wake_at: Callable[[S, datetime], datetime | None]
    run_id: Callable[[S], UUID | None]
    terminal: frozenset[str]

    def fold(self, events: tuple[Event, ...], state: S | None = None) -> S:
        """The state that these facts add up to, from `state` or from the beginning."""
        folded = self.initial if state is None else state
        for event in events:
            folded = self.evolve(folded, event)
        return folded


def no_run(_state: object) -> None:
    """`run_id` of what belongs to no run."""
    return


def never(_state: object, _now: datetime) -> None:
    """`wake_at` of what waits for nobody's clock."""
    return
