"""Load, decide, append, publish: the one loop that every owner of a category runs."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from contracts.base import Event, Metadata
from contracts.errors import Broken, Conflict, MinutebookError, Rejected, Unavailable
from libs.domain.core import NOTHING, Category, Decided
from libs.eventstore.port import Append, Appended, BatchResult, BirthRow, EventStore, Load
from libs.eventstore.snapshots import SNAPSHOT_EVERY, told
from libs.faultpoints import faultpoint
from libs.owner.held import Held, States
from libs.owner.items import Beside, Done, Item, Prepare, Result
from libs.owner.publisher import Publisher
from libs.owner.telling import Telling
from libs.telemetry import metrics
from libs.telemetry.logs import get_logger

S = TypeVar("S")
C = TypeVar("C")

ROUNDS_MAX: Final = 8
"""How often a batch's losers are loaded and decided again before they get a `Conflict`."""

WAKE_AGAIN: Final = timedelta(seconds=30)
"""When a woken stream has nothing to say and would be due at once again."""

_log = get_logger("owner")


class Owner(Generic[S, C]):
    """The one writer of a category.

    `decide` judges one command; `prepare`, where given, completes the commands of a batch with what their deciders
    need from elsewhere, once their states are known; what `beside` names comes with the states, in the same query.
    `categories` are those that births may go to. `observe` is told what was written: a stream's state before, and its
    new facts. `quiet` are types of the category's own facts that are no news when they are written here. A stream is
    kept as a snapshot when `snapshot_every` facts have come to it since it last was.
    """

    def __init__(
        self,
        category: Category[S],
        decide: Callable[[C, S, datetime], Decided],
        *,
        store: EventStore,
        publisher: Publisher,
        categories: Mapping[str, Category[Any]] | None = None,
        prepare: Prepare[C, S] | None = None,
        beside: Beside[C, S] | None = None,
        observe: Callable[[S, Sequence[Event]], None] | None = None,
        quiet: frozenset[str] = frozenset(),
        snapshot_every: int = SNAPSHOT_EVERY,
    ) -> None:
        self._category = category
        self._decide = decide
        self._store = store
        self._categories = categories or {}
        self._prepare = prepare
        self._observe = observe
        self._states = States(category, store, beside=beside, snapshot_every=snapshot_every)
        self._telling = Telling(publisher, category=category.name, quiet=quiet)

    async def handle(self, items: Sequence[Item[C]], *, loaded: Load | None = None) -> list[Result[S]]:
        """Carry out a batch; one result per item, in order. An item's failure is its own.

        Several items of one stream are carried out one after the other. `loaded` holds all of their streams from the
        beginning, where the caller has just read them or takes them for new; one that is otherwise loses its gate and
        is read then.
        """
        results: dict[int, Result[S]] = {}
        waiting = dict(enumerate(items))
        while waiting:
            turn: dict[UUID, int] = {}
            for index, item in waiting.items():
                turn.setdefault(item.stream_id, index)
            chosen = {index: waiting.pop(index) for index in turn.values()}
            results.update(await self._handle_distinct(chosen, loaded))
            loaded = None
        return [results[index] for index in range(len(items))]

    async def _handle_distinct(self, items: Mapping[int, Item[C]], loaded: Load | None = None) -> dict[int, Result[S]]:
        results: dict[int, Result[S]] = {}
        open_ = dict(items)
        for _ in range(ROUNDS_MAX):
            try:
                results.update(await self._round(open_, loaded))
            except Broken as error:
                results.update(await self._one_by_one(open_, error))
            except Unavailable as error:
                self._states.forget(item.stream_id for item in open_.values())
                results.update(dict.fromkeys(open_, error))
            loaded = None
            open_ = {index: item for index, item in open_.items() if index not in results}
            if not open_:
                return results
        lost = Conflict("append.contended", f"the stream was changed by others {ROUNDS_MAX} times; send it again")
        return results | dict.fromkeys(open_, lost)

    async def _one_by_one(self, items: Mapping[int, Item[C]], error: Broken) -> dict[int, Result[S]]:
        """The statement was refused: find the item that it cannot take, and spare the others."""
        if len(items) == 1:
            return dict.fromkeys(items, error)
        results: dict[int, Result[S]] = {}
        for index, item in items.items():
            results.update(await self._handle_distinct({index: item}))
        return results

    async def _round(self, items: Mapping[int, Item[C]], loaded: Load | None) -> dict[int, Result[S]]:
        """Load, decide and append once. Items that lost their gate are left out of the result."""
        results: dict[int, Result[S]] = {}
        load, held = await self._states.load(list(items.values()), loaded)
        now = load.now
        decided = await self._decide_all(items, held, load, results)
        appends: dict[int, Append] = {}
        states: dict[int, S] = {}
        moves: list[tuple[UUID, int, datetime | None]] = []
        for index, decision in decided.items():
            item, before = items[index], held[items[index].stream_id]
            if not decision.events:
                results[index] = Done(item.stream_id, before.version, before.state, changed=False)
                # A caller's command that has nothing to say has not looked at what the wake is for: it stays due.
                if before.wake_at is not None and before.wake_at <= now and item.actor.id is None:
                    moves.append((item.stream_id, before.version, self._later(before.state, now)))
                continue
            folded: S | None = decision.state
            states[index] = self._category.fold(decision.events, before.state) if folded is None else folded
            appends[index] = self._append(item, before, decision, states[index], now)
        if moves:
            await self._store.move_wakes(self._category.name, moves)
        if appends:
            batch = await self._write(list(appends.values()))
            for (index, append), fate in zip(appends.items(), batch.appended, strict=True):
                self._settle(index, append, fate, states[index], results)
                if self._observe is not None and fate.fate == "won":
                    self._observe(held[append.stream_id].state, append.events)
            await self._telling.tell(batch, appends.values())
            await self._states.keep([fate.stream_id for fate in batch.appended if fate.fate == "won"])
        return results

    async def _write(self, appends: Sequence[Append]) -> BatchResult:
        category = self._category.name
        metrics.APPEND_STREAMS.labels(category).observe(len(appends))
        faultpoint("append.before")
        with metrics.timed(metrics.APPEND_SECONDS.labels(category)):
            batch = await self._store.append(category, appends)
        faultpoint("append.committed")
        fates = Counter(appended.fate for appended in batch.appended)
        metrics.APPEND_LOST.labels(category).inc(fates["lost"])
        metrics.APPEND_GUARDED.labels(category).inc(fates["guarded"])
        return batch

    async def _decide_all(
        self,
        items: Mapping[int, Item[C]],
        held: Mapping[UUID, Held[S]],
        load: Load,
        results: dict[int, Result[S]],
    ) -> dict[int, Decided]:
        commands: Sequence[C | MinutebookError] = [item.command for item in items.values()]
        if self._prepare is not None:
            seen = [(item, held[item.stream_id].state, held[item.stream_id].tenant_group) for item in items.values()]
            commands = await self._prepare(seen, load)
        decided: dict[int, Decided] = {}
        for (index, item), command in zip(items.items(), commands, strict=True):
            state, group = held[item.stream_id].state, held[item.stream_id].tenant_group
            try:
                if group is not None and item.tenant_group is not None and group != item.tenant_group:
                    raise Rejected("stream.not_found", f"there is no such {self._category.name}", status=404)
                if not held[item.stream_id].done.isdisjoint(told(item.actor, item.causation)):
                    # Sent again since its reply was lost. What happened since must not turn it into a conflict.
                    decided[index] = NOTHING
                    continue
                if isinstance(command, MinutebookError):
                    raise command
                decided[index] = self._decide(command, state, load.now)
            except MinutebookError as error:
                results[index] = error
            except Exception as error:
                _log.exception("decider failed", category=self._category.name, stream_id=str(item.stream_id))
                results[index] = Broken("decider.failed", f"{type(error).__name__} while deciding; see the log")
        await self._postpone([items[i].stream_id for i in results if i in items], held, load.now)
        return decided

    async def _postpone(self, stream_ids: Sequence[UUID], held: Mapping[UUID, Held[S]], now: datetime) -> None:
        """A due stream whose command failed must not stand at the head of the scan for ever."""
        due = [(i, held[i]) for i in stream_ids if (at := held[i].wake_at) is not None and at <= now]
        if due:
            await self._store.move_wakes(self._category.name, [(i, h.version, now + WAKE_AGAIN) for i, h in due])

    def _append(self, item: Item[C], before: Held[S], decision: Decided, state: S, now: datetime) -> Append:
        tenant_group = before.tenant_group or item.tenant_group
        tenant = before.tenant or item.tenant
        if tenant_group is None or tenant is None:
            raise Broken("append.no_tenant", f"a new {self._category.name} stream needs a tenant group and a tenant")
        metadata = Metadata(
            tenant_group=tenant_group,
            tenant=tenant,
            actor=item.actor,
            correlation=self._category.run_id(state) or item.stream_id,
            causation=item.causation,
            traceparent=_one_trace(before.traceparent, item.traceparent),
        )
        return Append(
            stream_id=item.stream_id,
            version=before.version,
            digest=before.digest,
            events=decision.events,
            metadata=metadata,
            state=self._category.status(state),
            columns=self._category.columns(state),
            wake_at=self._wake_at(before, state, now),
            claim=item.claim,
            set_claim=item.set_claim,
            release=item.release,
            guards=decision.guards,
            deadline=min((at for at in (item.deadline, decision.deadline) if at is not None), default=None),
            births=tuple(self._birth(birth, now) for birth in decision.births),
            blobs=decision.blobs,
            ready=decision.ready,
        )

    def _birth(self, birth: Any, now: datetime) -> BirthRow:
        category = self._categories[birth.category]
        state = category.fold((birth.event,))
        return BirthRow(
            category=birth.category,
            stream_id=birth.stream_id,
            event=birth.event,
            state=category.status(state),
            columns=category.columns(state),
            wake_at=category.wake_at(state, now),
            work_subject=birth.work_subject,
            correlation=category.run_id(state) or birth.stream_id,
        )

    def _settle(self, index: int, append: Append, fate: Appended, state: S, results: dict[int, Result[S]]) -> None:
        match fate.fate:
            case "won":
                self._states.advance(append, fate, state)
                results[index] = Done(append.stream_id, fate.version, state, changed=True, skipped=fate.skipped)
            case "guarded":
                results[index] = Rejected(
                    "append.guarded", "the run that this belongs to does not allow it any more", status=409
                )
            case "late":
                results[index] = Unavailable(
                    "ask.late", "the deadline of the command has passed; nothing was done", again=True
                )
            case "lost":
                if append.claim is not None and fate.version == append.version:
                    results[index] = Rejected("claim.lost", "this claim is not the current one", status=409)

    def _wake_at(self, before: Held[S], state: S, now: datetime) -> datetime | None:
        """Lazy: a wake moves only when it must be earlier or has passed. It may be early, never late."""
        if self._category.status(state) in self._category.terminal:
            return None
        wanted = self._category.wake_at(state, now)
        current = before.wake_at
        if current is not None and current > now and (wanted is None or current <= wanted):
            return current
        return wanted

    def _later(self, state: S, now: datetime) -> datetime | None:
        """The next wake of a stream that was due and had nothing to say."""
        if self._category.status(state) in self._category.terminal:
            return None
        wanted = self._category.wake_at(state, now)
        return wanted if wanted is None or wanted > now else now + WAKE_AGAIN


def _one_trace(origin: str | None, current: str | None) -> str | None:
    """A stream keeps the trace that it began with: a run is one trace over days, whoever moves it on."""
    if origin is None:
        return current
    if current is not None and current.split("-")[1:2] == origin.split("-")[1:2]:
        return current
    return origin
