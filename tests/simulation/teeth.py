"""The guards of the design that can be taken away, to see whether the simulation misses them.

Each removal leaves the rest of the product as it is. Where two guards stand behind each other, both go: what is shown
is that their promise is watched, not that one of them is needed beside the other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import import_module
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

from contracts import ids
from contracts.errors import MinutebookError
from libs.clock import monotonic
from libs.domain import admission, attempt, decision, effect, run
from libs.domain.core import Decided, facts
from libs.domain.effect import settling
from libs.eventstore.memory import MemoryStore
from libs.ids import mint, nonce
from libs.mcp import Unknown
from libs.owner import owner
from services.effects import ledger, outcomes
from services.effects.handlers import Handlers
from services.effects.turns import Turn
from services.ingest.waits import Waits
from services.scheduler.incarnations import Incarnations
from services.scheduler.sweep import Sweep

Replacements = Callable[[], Sequence[tuple[Any, str, Any]]]
"""(where, name, what stands there instead) of each part of a guard."""


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard, and the promise that falls without it."""

    promise: str
    replacements: Replacements

    @contextmanager
    def removed(self) -> Iterator[None]:
        """Be without it meanwhile."""
        with ExitStack() as stack:
            for where, name, instead in self.replacements():
                stack.enter_context(patch.object(where, name, instead))
            yield


async def _nothing(*_args: Any, **_options: Any) -> Any:
    return None


def _appends_changed(change: Callable[[MemoryStore, str, Any], Any]) -> Replacements:
    """Every append as `change` makes it before the store sees it."""
    append = MemoryStore.append

    async def changed(store: MemoryStore, category: str, appends: Sequence[Any]) -> Any:
        return await append(store, category, [change(store, category, each) for each in appends])

    return lambda: [(MemoryStore, "append", changed)]


def _at_the_end(store: MemoryStore, category: str, append: Any) -> Any:
    """Whatever was read, write after what is there."""
    head = store.rows[category].get(append.stream_id)
    return append if head is None else replace(append, version=head.version, digest=head.digest)


def _claims_believed() -> Sequence[tuple[Any, str, Any]]:
    """A report counts whichever claim it carries, and whoever holds the attempt."""
    unclaimed = _appends_changed(lambda _store, _category, append: replace(append, claim=None))
    return [*unclaimed(), (attempt, "_must_hold", lambda claim, state: None)]


def _ids_by_chance() -> Sequence[tuple[Any, str, Any]]:
    derive = ids.derive
    unique = {"inbound", "run"}
    return [(ids, "derive", lambda kind, *parts: mint() if kind in unique else derive(kind, *parts))]


def _born_again() -> Sequence[tuple[Any, str, Any]]:
    """A birth overwrites a stream that exists."""
    bear = MemoryStore._bear

    def forced(store: MemoryStore, batch: Any, statement: Any) -> Any:
        for birth in batch.births:
            if birth.parent in statement.won:
                store.rows[birth.row.category].pop(birth.row.stream_id, None)
        return bear(store, batch, statement)

    return [(MemoryStore, "_bear", forced)]


def _answered_again() -> Sequence[tuple[Any, str, Any]]:
    deciding = import_module("libs.domain.decision.decide")
    answer = deciding.answer

    def forgetful(command: Any, state: decision.State, now: datetime) -> Decided:
        decided: Decided = answer(command, replace(state, status="open"), now)
        return decided

    return [(deciding, "answer", forgetful)]


def _called_first() -> Sequence[tuple[Any, str, Any]]:
    """The call is made, and only then announced."""
    announce = ledger.Ledger._announce

    async def eager(self: ledger.Ledger, turns: Sequence[Turn]) -> dict[UUID, MinutebookError]:
        for turn in turns:
            to_call = await self._connectors.resolve(turn.tenant_group, turn.effect)
            call = ledger._Current(
                effect_id=turn.effect_id,
                server=turn.server,
                claim=nonce(),
                traceparent=turn.traceparent,
                announced_at=monotonic(),
            )
            await self._call(call, turn.effect, to_call)
        return await announce(self, turns)

    return [(ledger.Ledger, "_announce", eager)]


def _doubt_is_failure() -> Sequence[tuple[Any, str, Any]]:
    """A call that was not answered counts as one that was not sent."""
    judge = outcomes.verdict

    def sure(outcome: Any, *, tool: Any, claim: UUID) -> Any:
        if isinstance(outcome, Unknown):
            return effect.Fail(claim=claim, failure_class="connector_unavailable", message=outcome.reason)
        return judge(outcome, tool=tool, claim=claim)

    return [(ledger, "verdict", sure)]


def _unguarded(name: str) -> Replacements:
    """An aggregate's decisions hold whatever state its run is in."""
    return _appends_changed(lambda _store, category, append: replace(append, guards=()) if category == name else append)


def _no_watchdog(category: Any) -> Replacements:
    def never_looked_at(_category: Any, before: Any, state: Any, now: datetime) -> Any:
        return None if _category._category.name == category.name else wake_at(_category, before, state, now)

    wake_at = owner.Owner._wake_at
    return lambda: [(owner.Owner, "_wake_at", never_looked_at)]


GUARDS: Final[Mapping[str, Guard]] = {
    "version_gate": Guard("a fact is decided on what stands before it", _appends_changed(_at_the_end)),
    "old_claims_refused": Guard("a runner that wakes up late writes nothing", _claims_believed),
    "run_guard_of_pending": Guard("what was cancelled is not written", _unguarded("effect")),
    "run_guard_of_answers": Guard("a run that is over takes no answer", _unguarded("decision")),
    "derived_ids": Guard("an event starts a workflow once", _ids_by_chance),
    "births_skipped": Guard("what exists is not born again", _born_again),
    "answered_once": Guard("a decision has one answer", _answered_again),
    "pending_before_call": Guard("a call is announced before it is made", _called_first),
    "late_calls_not_made": Guard(
        "a process that was frozen makes no old call",
        lambda: [(ledger, "monotonic", lambda: 0.0)],
    ),
    "doubt_is_doubt": Guard("nothing is done twice outside", _doubt_is_failure),
    "verdicts_after_calls": Guard(
        "nobody's verdict comes before a call is over", lambda: [(settling, "is_over", lambda state, now: True)]
    ),
    "restored_is_doubt": Guard(
        "nothing is done twice after a restore", lambda: [(ledger.Ledger, "_restored", _none_restored)]
    ),
    "forks_told": Guard(
        "a run goes on by itself once its doubt is settled", lambda: [(MemoryStore, "forks_of", _no_rows)]
    ),
    "wakes_moved": Guard("a woken owner moves its wake", lambda: [(MemoryStore, "move_wakes", _nothing)]),
    "watchdog_of_runs": Guard("a lost message costs a minute", _no_watchdog(run.CATEGORY)),
    "watchdog_of_effects": Guard("a lost message costs a minute", _no_watchdog(effect.CATEGORY)),
    "outbox_sweep": Guard("what was committed is published", lambda: [(Sweep, "publish", _nothing)]),
    "lost_bus_wakes": Guard(
        "the loss of everything that the bus holds loses nothing", lambda: [(Incarnations, "_wake", _walked)]
    ),
    "lost_arms": Guard(
        "a lost message cannot leave a failed effect behind", lambda: [(Handlers, "_armed_since", _none_armed)]
    ),
    "commands_known_again": Guard(
        "a lost reply makes no conflict", lambda: [(owner, "told", lambda actor, causation: frozenset())]
    ),
    "deliveries_swept": Guard(
        "a delivery that was accepted is recorded", lambda: [(MemoryStore, "due_deliveries", _no_rows)]
    ),
    "events_look_back": Guard(
        "an event that came before it was waited for is taken", lambda: [(Waits, "_earlier", _none_earlier)]
    ),
    "places_limited": Guard(
        "no more runs work under a key than may",
        lambda: [(admission._Settling, "enqueue", lambda settling, wanted: settling.grant(wanted.run_id, wanted))],
    ),
    "places_come_back": Guard(
        "the place of a run that ended goes to the next one",
        lambda: [(admission._Settling, "release", lambda settling, over: None)],
    ),
    "leases_end": Guard("the work of a dead runner is taken over", lambda: [(attempt, "_lose_lease", _kept)]),
}
"""Name → guard."""


async def _walked(*_args: Any) -> bool:
    return True


async def _none_restored(*_args: Any) -> frozenset[UUID]:
    return frozenset()


async def _none_armed(*_args: Any) -> Mapping[UUID, int]:
    return {}


async def _none_earlier(*_args: Any) -> Mapping[UUID, Any]:
    return {}


async def _no_rows(*_args: Any, **_options: Any) -> Sequence[UUID]:
    return ()


def _kept(*_args: Any) -> Decided:
    return facts()
