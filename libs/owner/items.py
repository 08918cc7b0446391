"""What an owner is asked, what it answers, and what its service may give it to work with."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

from contracts.base import Actor
from contracts.errors import MinutebookError
from libs.eventstore.port import Load

S = TypeVar("S")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Item(Generic[C]):
    """A command for one stream, and who sends it.

    `tenant_group` and `tenant` are needed where the command may create the stream; where they are given and the
    stream belongs to another group, it does not exist for this command. `claim` gates the append on the head's
    current claim; `set_claim` records a new one; `release` clears it. After `deadline` nothing is written.
    """

    stream_id: UUID
    command: C
    actor: Actor
    causation: UUID
    tenant_group: UUID | None = None
    tenant: UUID | None = None
    traceparent: str | None = None
    claim: UUID | None = None
    set_claim: UUID | None = None
    release: bool = False
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class Done(Generic[S]):
    """An item's result: the state that the stream has now. `skipped` are births that existed already."""

    stream_id: UUID
    version: int
    state: S
    changed: bool
    skipped: tuple[UUID, ...] = ()


Result = Done[S] | MinutebookError

Prepare = Callable[[Sequence[tuple[Item[C], S, UUID | None]], Load], Awaitable[Sequence[C | MinutebookError]]]
"""Completes commands: (item, state, the stream's tenant group) of each → its command, or why it cannot be judged.

The load is the one that brought the states, with what `beside` named.
"""

Beside = Callable[[C, S], Iterable[tuple[str, UUID]]]
"""Names what else a command will probably need, as its stream was last seen: (category, stream)."""
